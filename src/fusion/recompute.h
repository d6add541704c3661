// What forward would save for backward alone, computed again inside backward's kernels where that moves fewer words.
// Tests: tests/fusion/recompute_test.cpp; why: docs/decisions/0006-recomputation.md.
#pragma once

#include "autodiff/training_graph.h"
#include "fusion/fused_graph.h"

namespace millrace {

struct Recomputed {
  TrainingGraph training;  // with the operators that are computed again: its `repeated`
  FusedGraph fused;
};

// Fuses, and looks for tensors that forward writes only because kernels of backward read them. Such a kernel may get a
// copy of the map or normalization that makes the tensor, and of what is before it down to tensors in memory; then the
// tensor is in registers in both passes. Taken where the fused graph moves strictly fewer words, and where nothing that
// is computed again is written. A tensor that leaves the program or that a contraction of backward reads stays saved.
Recomputed recompute(const TrainingGraph& training);
// The same of a graph that is fused already. `epilogues`: products can do a bias and a GELU at their end, and write
// what the GELU is taken of, too: that stays saved.
Recomputed recompute(const TrainingGraph& training, FusedGraph fused, bool epilogues);

}  // namespace millrace
