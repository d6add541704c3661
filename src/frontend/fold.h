// Simplifies a lowered graph: folds scalings into the contractions before them and removes unused operators.
// Tests: tests/frontend/fold_test.cpp.
#pragma once

#include "ir/graph.h"

namespace millrace {

// Makes `scaler * np.einsum(…)` one contraction with a scale, as in the paper (section A.5.1): no words, no flop.
void fold_scales(Graph& graph);

// Removes operators and tensors that no result depends on. Arguments stay.
void remove_unused(Graph& graph);

}  // namespace millrace
