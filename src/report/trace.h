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

// One lane for the passes, then one for each thread that launches use on a CPU, or for the stream of a GPU; and the
// bytes of the arena that are alive, as a counter. Each launch has its candidate, its buffers and its predicted time.
std::string trace_json(const StepPlan& plan, const std::vector<TracedLaunch>& run);

}  // namespace millrace
