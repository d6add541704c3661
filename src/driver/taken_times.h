// What a plan's folder has for its reports besides the plan: times.json, written by `millrace bench --json` (optimize
// writes one with the step alone), counted.json, written by bench/mue.py, and search.json, in which optimize records
// its exploration over time. Test: tests/driver/taken_times_test.cpp
#pragma once

#include <string>
#include <vector>

#include "measure/measurements.h"
#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

inline constexpr const char* kTimesFile = "times.json";
inline constexpr const char* kCountedFile = "counted.json";
inline constexpr const char* kSearchFile = "search.json";

struct TakenTimes {
  double step_seconds = 0;               // 0: not measured
  std::vector<double> launch_seconds;    // one per launch, or none
  std::vector<double> launch_bytes;      // that moved, counted by hardware; one per launch, or none
  std::vector<ExplorationPoint> search;  // of the exploration that found the plan
  std::vector<std::string> left_out;     // files of another plan, and what to do
};

// `path`: the plan's folder, or its plan.json. A file that does not exist is no error; one that cannot be read is.
Result<TakenTimes> taken_times(const StepPlan& plan, const std::string& path);

// The content of times.json for a step's median and interval.
std::string step_times_json(const StepPlan& plan, double median, double low, double high);

// The content of search.json.
std::string search_json(const StepPlan& plan, const std::vector<ExplorationPoint>& points);

}  // namespace millrace
