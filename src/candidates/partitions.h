// What can be launched: fused operators, their members alone, contractions separate, stacked or with epilogues, and
// attentions; and the choice points between them. Test: tests/candidates/enumerate_test.cpp
#pragma once

#include <vector>

#include "autodiff/training_graph.h"
#include "base/target.h"
#include "candidates/candidates.h"
#include "fusion/fused_graph.h"

namespace millrace {

// Partitions without candidates, choice points, contiguous groups and rejected alternatives.
// `callers_contiguous_groups`: the caller's tensors that are adjacent in memory.
Candidates find_partitions(const TrainingGraph& training, const FusedGraph& fused, const Target& target,
                           const std::vector<std::vector<TensorId>>& callers_contiguous_groups);

// A tensor's layout conversion as a partition: it reads and writes the same tensor.
Partition conversion_partition(const Graph& graph, TensorId tensor);

}  // namespace millrace
