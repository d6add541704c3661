// What there was to try, what was tried, and why the rest was not.
// Test: tests/report/exploration_report_test.cpp, tests/python/optimize_test.py
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "measure/measurements.h"
#include "report/candidate_words.h"
#include "report/units.h"

namespace millrace {

// Every partition with its number of candidates, and what was rejected, with the reason.
std::string candidates_text(const Graph& graph, const Candidates& candidates, size_t width);
std::string candidates_json(const Graph& graph, const Candidates& candidates);

std::string exploration_text(const Measurements& measurements, const Exploration& exploration,
                             const CandidateWords& words, size_t width);

// "1,234 of 411,055 candidates in 60 s (1,200 new): 1,233 right, 1 wrong"
std::string exploration_line(const Exploration& exploration);

// "certified: no plan of these 1,234 candidates is faster", or the proven lower bound; "" if nothing was proven.
std::string certificate_line(const Exploration& exploration);

// Seconds since the exploration began, candidates tried, the best step and its lower bound so far.
nlohmann::ordered_json over_time_json(const std::vector<ExplorationPoint>& points);

// "1,233 right, 1 wrong"
std::string outcomes_text(const Exploration& exploration);

}  // namespace millrace
