// A selection as a table for people and as JSON: partitions, conversions, and the gap to the lower bound.
// Test: tests/report/selection_report_test.cpp
#pragma once

#include <string>

#include "measure/measurements.h"
#include "report/candidate_words.h"
#include "select/selection.h"

namespace millrace {

std::string selection_text(const Measurements& measurements, const Selection& selection, size_t width,
                           const CandidateWords& words = {});
std::string selection_json(const Measurements& measurements, const Selection& selection);

}  // namespace millrace
