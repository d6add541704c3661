// What a plan from any source must satisfy with respect to its program. A plan that passes computes the whole step,
// touches only its arena and the caller's tensors, and reads only what was written. Test: tests/plan/verify_test.cpp
#pragma once

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

// `candidates`: from find_partitions with the plan's layouts; it needs no configs.
Result<Done> verify(const StepPlan& plan, const TrainingGraph& training, const Candidates& candidates);

}  // namespace millrace
