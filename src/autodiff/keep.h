// Decides for each forward tensor that backward reads whether it is given, saved or recomputed.
// Tests: tests/autodiff/keep_test.cpp.
#pragma once

#include "autodiff/training_graph.h"

namespace millrace {

// Recomputes a tensor if its producer is a map that reads fewer words than the tensor has: broadcasts and masks.
// Saves all others. Fills `kept` and adds the recomputing operators.
void decide_keeping(TrainingGraph& training);

}  // namespace millrace
