// Tidies a lowered graph: scalings go into the contractions that they follow, and what no result needs goes away.
#pragma once

#include "ir/graph.h"

namespace millrace {

// `scaler * np.einsum(…)` is one contraction with a scale, as in the paper (its section A.5.1): no words, no flop.
void fold_scales(Graph& graph);

// Drops operators and tensors that no result depends on. Arguments stay.
void remove_unused(Graph& graph);

}  // namespace millrace
