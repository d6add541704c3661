// A run of a plan as a timeline for Perfetto and chrome://tracing. Test: tests/report/trace_test.cpp
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace millrace {

struct TracedLaunch {
  int step = 0;
  size_t launch = 0;  // index in the plan
  double begin = 0;   // seconds since the run began
  double seconds = 0;
};

// One row for the passes, one for the launches; each launch with its candidate, its buffers and its predicted time.
std::string trace_json(const StepPlan& plan, const std::vector<TracedLaunch>& run);

}  // namespace millrace
