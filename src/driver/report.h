// The report of a plan and its program's measurements. Test: tests/python/report_test.py
#pragma once

#include <string>

#include "driver/taken_times.h"
#include "driver/tuning.h"
#include "plan/plan.h"
#include "report/html/document.h"
#include "report/metrics.h"
#include "select/selection.h"

namespace millrace {

struct ReportedPlan {
  const StepPlan& plan;
  std::string folder;                    // empty: not written
  const Selection* selection = nullptr;  // null: unknown
  double step_seconds = 0;               // 0: not measured
  const TakenTimes* taken = nullptr;     // null: none
};

struct PlanReport {
  StepMetrics metrics;
  Document document;
};

Result<PlanReport> report_of(const Tuned& tuned, const ReportedPlan& reported);

}  // namespace millrace
