// What can be launched: the fused graph's groups, their members alone, contractions apart and stacked; and which of
// them together make a whole.
#pragma once

#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "fusion/fused_graph.h"

namespace millrace {

// Partitions without candidates, choice points, families and what was rejected. `on_gpu`: contractions with biases and
// their gradients too, which a library there does at a product's end. `callers_contiguous_groups`: the caller's tensors
// that lie one behind the other.
Candidates find_partitions(const TrainingGraph& training, const FusedGraph& fused, bool on_gpu,
                           const std::vector<std::vector<TensorId>>& callers_contiguous_groups);

// A tensor's conversion as a part of its own: it reads and writes the same tensor.
Partition conversion_partition(const Graph& graph, TensorId tensor);

}  // namespace millrace
