// Measurements of a plan from after it was made, in files in its folder: times.json, written by `millrace bench --json`
// (optimize writes one with the step alone), and counted.json, written by bench/mue.py. Test:
// tests/driver/taken_times_test.cpp
#pragma once

#include <string>
#include <vector>

#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

inline constexpr const char* kTimesFile = "times.json";
inline constexpr const char* kCountedFile = "counted.json";

struct TakenTimes {
  double step_seconds = 0;             // 0: not measured
  std::vector<double> launch_seconds;  // one per launch, or none
  std::vector<double> launch_bytes;    // that moved, counted by hardware; one per launch, or none
  std::vector<std::string> left_out;   // files of another plan, and what to do
};

// `path`: the plan's folder, or its plan.json. A file that does not exist is no error; one that cannot be read is.
Result<TakenTimes> taken_times(const StepPlan& plan, const std::string& path);

// The content of times.json for a step's median and interval.
std::string step_times_json(const StepPlan& plan, double median, double low, double high);

}  // namespace millrace
