// What a plan must satisfy with respect to its program, whoever wrote it down: running it then does all of the step,
// touches nothing but its arena and the caller's tensors, and reads only what is there. Test:
// tests/plan/verify_test.cpp
#pragma once

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

// `candidates`: of find_partitions with the plan's layouts; their ways are not needed.
Result<Done> verify(const StepPlan& plan, const TrainingGraph& training, const Candidates& candidates);

}  // namespace millrace
