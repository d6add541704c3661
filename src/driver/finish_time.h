// How long the parts of `optimize` after the exploration take, estimated from counts: a budget must leave time for
// them. Test: tests/driver/finish_time_test.cpp
#pragma once

#include "driver/tuning.h"
#include "ir/graph.h"

namespace millrace {

// Searching for the best selection. `budget`: of the whole command; infinite: none.
double select_seconds(double budget);

// Compiling so many kernels, on all cores.
double compile_seconds(size_t kernels, const Machine& machine);

// Drawing the caller's tensors and copying them to the device.
double draw_seconds(const Graph& graph, const Machine& machine);

// Selecting, writing the plan, and timing it against the step before optimization.
FinishTime finish_time(const Prepared& prepared, const Machine& machine, double budget);

// After the budget, for parts that a plan does not need: less than the 10 % and 5 s that a command may take longer.
double grace_seconds(double budget);

}  // namespace millrace
