// The report of a plan and of what is known about its program.
#pragma once

#include <string>

#include "driver/tuning.h"
#include "plan/plan.h"
#include "report/html/document.h"
#include "report/metrics.h"
#include "select/selection.h"

namespace millrace {

struct ReportedPlan {
  const StepPlan& plan;
  std::string folder;                    // empty: it was not written
  const Selection* selection = nullptr;  // that it was made from, where that is known
  double step_seconds = 0;               // measured; 0: it was not
};

struct PlanReport {
  StepMetrics metrics;
  Document document;
};

Result<PlanReport> report_of(const Tuned& tuned, const ReportedPlan& reported);

}  // namespace millrace
