// Recomputes in backward's kernels what forward would save only for backward, if that moves fewer words.
// Tests: tests/fusion/recompute_test.cpp; why: docs/decisions/0006-recomputation.md.
#pragma once

#include "autodiff/training_graph.h"
#include "fusion/fused_graph.h"

namespace millrace {

struct Recomputed {
  TrainingGraph training;  // with the recomputing operators, listed in `repeated`
  FusedGraph fused;
};

// Fuses, and looks for tensors that forward writes only for backward kernels. Such a kernel may get a copy of the map
// or normalization that computes the tensor, and of its producers down to tensors in memory; then the tensor stays in
// registers in both passes. Applied only if the fused graph moves strictly fewer words and no recomputed tensor is
// written. Results of the program and tensors that a backward contraction reads stay saved.
Recomputed recompute(const TrainingGraph& training);
// The same for a fused graph. `epilogues`: products can absorb a bias and a GELU and also write the GELU's input, which
// then stays saved.
Recomputed recompute(const TrainingGraph& training, FusedGraph fused, bool epilogues);

}  // namespace millrace
