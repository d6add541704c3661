// A partition as a graph of its own, for the oracles. Test: tests/measure/gpu_reference_test.cpp
#pragma once

#include <vector>

#include "candidates/candidates.h"

namespace millrace {

// The partition's operators, after those that it repeats, as a separate graph. Its other inputs are arguments.
struct PartitionGraph {
  Graph graph;
  std::vector<TensorId> reads;
  std::vector<TensorId> writes;
};

PartitionGraph partition_graph(const Graph& whole, const Partition& partition);

}  // namespace millrace
