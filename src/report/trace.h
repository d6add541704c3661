// A run of a plan as a timeline for Perfetto and chrome://tracing. Test: tests/report/trace_test.cpp
#pragma once

#include <string>
#include <vector>

#include "base/target.h"
#include "plan/plan.h"

namespace millrace {

struct TracedLaunch {
  int step = 0;
  size_t launch = 0;  // index in the plan
  double begin = 0;   // seconds since the run began
  double seconds = 0;
};

// One lane for the passes, then one for each thread that launches use on a CPU, or for the stream of a GPU; and a
// counter of the arena's live bytes. Each launch has its candidate, its buffers and its predicted time. `target`: of
// the device that the plan is for.
std::string trace_json(const StepPlan& plan, const Target& target, const std::vector<TracedLaunch>& run);

}  // namespace millrace
