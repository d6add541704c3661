// Artefacts → the report's document. Test: tests/report/make_report_test.cpp
#pragma once

#include "report/candidate_words.h"
#include "report/html/document.h"
#include "report/metrics.h"

namespace millrace {

// `metrics`: as measure_step makes them from the artefacts.
Document make_report(const ReportArtefacts& artefacts, const StepMetrics& metrics);

// Two plans side by side, differences first: times, candidates, layouts.
struct ComparedPlan {
  std::string name;
  const StepPlan& plan;
  double step_seconds = 0;  // measured; 0: not measured
  CandidateWords words = {};
};
Document make_comparison(const ComparedPlan& a, const ComparedPlan& b);

}  // namespace millrace
