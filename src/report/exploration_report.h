// What there was to try, what was tried, and why the rest was not.
// Test: tests/python/optimize_test.py
#pragma once

#include <string>

#include "candidates/candidates.h"
#include "measure/measurements.h"

namespace millrace {

// Every partition with its number of configurations, and what was rejected, with the reason.
std::string candidates_text(const Graph& graph, const Candidates& candidates, size_t width);

std::string exploration_text(const Measurements& measurements, const Exploration& exploration, size_t width);

// "1,234 of 411,055 candidates in 60 s (1,200 new): 1,233 right, 1 wrong"
std::string exploration_line(const Exploration& exploration);

// "1,233 right, 1 wrong"
std::string outcomes_text(const Exploration& exploration);

// "411,055"
std::string with_commas(double count);
// "about 38,000,000 (estimated)"
std::string about(double count);

// "1.23", "0.0043": two digits at least, never zero for a positive number.
std::string shown_ratio(double ratio);

// "1.23 ms"
std::string shown_seconds(double seconds);

}  // namespace millrace
