// What an analysis must satisfy with respect to its training graph. Test: tests/analysis/verify_test.cpp
#pragma once

#include "analysis/analysis.h"
#include "autodiff/training_graph.h"
#include "millrace/result.h"

namespace millrace {

// One row per operator, in the graph's order. No count is negative, an operator moves at least its inputs and outputs,
// and every total is the sum of its rows.
Result<Done> verify(const TrainingGraph& training, const Analysis& analysis);

}  // namespace millrace
