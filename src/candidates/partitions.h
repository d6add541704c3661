// What can be launched: fused operators, their members alone, contractions separate, stacked or with epilogues, and
// attentions; and the choice points between them. Test: tests/candidates/enumerate_test.cpp
#pragma once

#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "fusion/fused_graph.h"

namespace millrace {

// What a device's libraries and kernels can do.
struct PartitionTarget {
  bool epilogues = false;                // products add biases, apply activations and sum gradients of biases
  bool reads_while_multiplying = false;  // a product that accumulates reads its addend while it multiplies
  bool fused_attention = false;
};

// Partitions without candidates, choice points, contiguous groups and rejected alternatives.
// `callers_contiguous_groups`: the caller's tensors that are adjacent in memory.
Candidates find_partitions(const TrainingGraph& training, const FusedGraph& fused, const PartitionTarget& target,
                           const std::vector<std::vector<TensorId>>& callers_contiguous_groups);

// A tensor's layout conversion as a partition: it reads and writes the same tensor.
Partition conversion_partition(const Graph& graph, TensorId tensor);

}  // namespace millrace
