// Makes partitions out of operators: their tensors in memory, their loop nests, what they leave of a fused kernel.
// Test: tests/candidates/enumerate_test.cpp
#pragma once

#include <string>
#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/accumulations.h"
#include "candidates/candidates.h"
#include "fusion/fused_graph.h"

namespace millrace {

class PartitionBuilder {
 public:
  // The arguments must outlive it.
  PartitionBuilder(const TrainingGraph& training, const FusedGraph& fused);

  const TrainingGraph& training() const { return training_; }
  const Graph& graph() const { return graph_; }
  const FusedGraph& fused() const { return fused_; }
  // The groups of which an operator is a member, in order.
  std::vector<const FusedOperator*> groups_with(const std::vector<OperatorId>& operators) const;
  const Operator& op(OperatorId id) const { return graph_.operators[id.at()]; }
  const std::vector<OperatorId>& producers() const { return producers_; }
  // The readers of each tensor, without the training graph's statistics. A tensor that only statistics read need not be
  // in memory, because the partition that carries out a statistic computes its input too.
  const ReadersOfTensors& readers() const { return readers_; }
  // Per tensor: whether it is in the caller's memory.
  const std::vector<bool>& callers() const { return callers_; }

  // An operator alone. The indices that it reduces are its row.
  Partition single(OperatorId id) const;
  // Some members of a group, as one kernel; without a name.
  Partition kernel(const FusedOperator& group, const std::vector<size_t>& members) const;
  // Contractions and the operators that they absorb; without its product.
  Partition with_absorbed(const std::vector<OperatorId>& contractions, const std::vector<OperatorId>& absorbed) const;
  // Finds the tensors that the partition's operators read from memory and write to it.
  void find_movement(Partition& partition) const;

  std::vector<std::string> names_of(const std::vector<OperatorId>& operators) const;
  // "a + b with c, d".
  std::string name_with_absorbed(const std::vector<OperatorId>& contractions,
                                 const std::vector<OperatorId>& absorbed) const;

  // Whether an operator outside the partition depends on it, and the partition depends on that operator.
  bool is_in_cycle(const Partition& partition) const;
  // Whether the rest of a kernel can run as one: along all indices of its nest, and without a cycle.
  bool leaves_kernel(const FusedOperator& group, const std::vector<OperatorId>& absorbed) const;
  bool leaves_kernels(const std::vector<OperatorId>& absorbed) const;

  // The words that kernels move less if products absorb some of their members, minus those that the products move
  // more. `before`: what other products absorb already.
  int64_t words_saved(const std::vector<Partition>& products, const std::vector<OperatorId>& absorbed,
                      const std::vector<OperatorId>& before = {}) const;
  // The words of the tensors that it reads and writes.
  int64_t words_moved(const Partition& partition) const;

 private:
  const TrainingGraph& training_;
  const Graph& graph_;
  const FusedGraph& fused_;
  std::vector<OperatorId> producers_;
  ReadersOfTensors readers_;
  std::vector<bool> callers_;
  std::vector<size_t> group_of_;  // one per operator; kNoGroup: a statistic
};

// The members of a group that are not among `absorbed`, as positions.
std::vector<size_t> rest_of(const FusedOperator& group, const std::vector<OperatorId>& absorbed);

}  // namespace millrace
