// How long the parts of `optimize` after the exploration take, estimated from counts: a budget must leave time for
// them. Test: tests/driver/finish_time_test.cpp
#pragma once

#include "driver/tuning.h"
#include "ir/graph.h"

namespace millrace {

// The time to search for the best selection. `budget`: of the whole command; infinite: none.
double select_seconds(double budget);

// How long the kernels of a plan take to compile, in multiples of a small kernel. The plan has the first alternative of
// each choice point; equal kernels are compiled once.
double kernels_to_compile(const Graph& graph, const Candidates& candidates);
// The time to compile this many small kernels, on all cores.
double compile_seconds(double kernels, const Machine& machine);

// The time to draw the caller's tensors and copy them to the device.
double draw_seconds(const Graph& graph, const Machine& machine);

// The time to select, to write the plan, and to time it against the step before optimization.
FinishTime finish_time(const Prepared& prepared, const Machine& machine, double budget);

// Time after the budget, for optional parts of a plan: less than the 10 % and 5 s by which a command may exceed it.
double grace_seconds(double budget);

}  // namespace millrace
