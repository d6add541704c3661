// What backward only compares, saved as the outcome of the comparison: a bit an element.
// Tests: tests/fusion/predicates_test.cpp; why: docs/decisions/0007-predicates.md.
#pragma once

#include "autodiff/training_graph.h"
#include "fusion/recompute.h"

namespace millrace {

// Looks for kernels of backward that read a tensor of forward only to compare it: a ReLU's gradient asks where its
// output was positive, a maximum's which operand was larger. Forward then makes the comparison, in a kernel that has
// the tensor anyway, and backward reads bits. Taken where the fused graph moves strictly fewer words; then recompute().
// `epilogues`: products can do a bias and an activation at their end, and a kernel of nothing else may not be there;
// recompute() knows of it, too.
Recomputed save_predicates(const TrainingGraph& training, bool epilogues);

}  // namespace millrace
