// Decides how each forward tensor that backward reads gets there: given, saved, or recomputed.
#pragma once

#include "autodiff/training_graph.h"

namespace millrace {

// A tensor is made again where its producer is a map that reads fewer words than the tensor has: broadcasts and masks.
// Everything else is saved. Fills `kept` and adds the operators that recompute.
void decide_keeping(TrainingGraph& training);

}  // namespace millrace
