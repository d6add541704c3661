// Saves the outcome of a comparison, one bit per element, instead of a tensor that backward only compares.
// Tests: tests/fusion/predicates_test.cpp; why: docs/decisions/0007-predicates.md.
#pragma once

#include "autodiff/training_graph.h"
#include "fusion/recompute.h"

namespace millrace {

// Looks for backward kernels that read a forward tensor only to compare it: a ReLU's gradient needs to know where the
// output was positive, a maximum's which operand was larger. Forward then makes the comparison, in a kernel that has
// the tensor anyway, and backward reads bits. Applied only if the fused graph moves strictly fewer words; then runs
// recompute(). `epilogues`: products can absorb a bias and an activation, so a forward kernel of only those may not
// exist; also passed to recompute().
Recomputed save_predicates(const TrainingGraph& training, bool epilogues);

// The same, where fuse(training) and recompute() of it are known.
Recomputed save_predicates(const TrainingGraph& training, const FusedGraph& fused, Recomputed without, bool epilogues);

}  // namespace millrace
