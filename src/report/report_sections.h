// The sections of a report, one function each.
// Test: tests/python/report_test.py
#pragma once

#include "report/html/document.h"
#include "report/metrics.h"

namespace millrace {

// A time; a dash if it is unknown.
Cell seconds_cell(double seconds);

Section dataflow_section(const ReportArtefacts& artefacts, const StepMetrics& metrics);
Section operators_section(const ReportArtefacts& artefacts, const StepMetrics& metrics);
Section violins_section(const ReportArtefacts& artefacts);
Section roofline_section(const ReportArtefacts& artefacts, const StepMetrics& metrics);
// The byte model's and the plan's predictions against measured times.
Section model_section(const ReportArtefacts& artefacts, const StepMetrics& metrics);
Section selection_section(const ReportArtefacts& artefacts);
Section memory_section(const ReportArtefacts& artefacts);
// Best step, lower bound and candidates tried, over time.
Section search_section(const std::vector<ExplorationPoint>& points);
Section exploration_section(const ReportArtefacts& artefacts);

}  // namespace millrace
