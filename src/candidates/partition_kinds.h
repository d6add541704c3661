// The kinds of partitions besides operators alone. Each function adds those of one kind, or the reasons against them.
// Tests: tests/candidates/enumerate_test.cpp, additions_test.cpp, epilogues_test.cpp and attention_partitions_test.cpp
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/target.h"
#include "candidates/partition_set.h"

namespace millrace {

// kernel_partitions.cpp: fused operators and their members alone, contractions too.
void add_groups(const PartitionBuilder& builder, PartitionSet& set);
// The rest of each kernel when products absorb some of its members.
void add_rest_of_groups(const PartitionBuilder& builder, PartitionSet& set, const std::vector<OperatorId>& absorbed);

// accumulation_partitions.cpp: products that accumulate into an existing tensor.
class AccumulationPartitions {
 public:
  // Finds the sums whose products can accumulate one by one; adds nothing yet. `reads_while_multiplying`: the library
  // reads the accumulated tensor while it multiplies, so that an addition that moves as many words is worth a trial.
  AccumulationPartitions(const PartitionBuilder& builder, PartitionSet& set, bool reads_while_multiplying);

  // Adds the sums that can be made product by product.
  void add_sums();
  // Adds a stacked product that accumulates into a tensor, and the other products of that sum one by one. Returns
  // whether the program computes such a sum.
  bool add_stack(const std::vector<OperatorId>& contractions, const Product& product);

  // Additions that some product carries out.
  const std::vector<OperatorId>& summable() const { return summable_; }

 private:
  std::optional<Partition> accumulating(const std::vector<OperatorId>& contractions, const ProductSum& sum,
                                        Product product);
  void offer(const std::vector<Partition>& bundle);
  std::string add_once(const Partition& partition);

  const PartitionBuilder& builder_;
  PartitionSet& set_;
  bool reads_while_multiplying_;
  std::vector<std::vector<Partition>> sums_;  // per sum: the products that accumulate one by one
  std::vector<OperatorId> summable_;
};

// stacked_partitions.cpp: contractions stacked into one. Returns the stackings, the largest first, with their
// contractions in the order of the stack.
std::vector<Stacking> add_stacks(const PartitionBuilder& builder, PartitionSet& set, AccumulationPartitions& sums);

// joined_partitions.cpp: contractions that read the inputs of a join as stacked tensors, all its readers or none. Then
// the join is no copy.
void add_joined_operands(const PartitionBuilder& builder, PartitionSet& set);

// epilogue_partitions.cpp: contractions, or stacks of them, with the operators that a library computes in its epilogue.
// `able`: what the library computes. Returns what products may absorb besides set.absorbable(), each by itself.
std::vector<OperatorId> add_epilogues(const PartitionBuilder& builder, PartitionSet& set,
                                      const std::vector<Stacking>& stackings, const GemmEpilogues& able);

// attention_partitions.cpp: fused attention, both passes of each or neither.
void add_attentions(const PartitionBuilder& builder, PartitionSet& set);

}  // namespace millrace
