#include "candidates/partitions.h"

#include "base/text.h"
#include "candidates/partition_kinds.h"

namespace millrace {
namespace {

std::vector<OperatorId> joined(std::vector<OperatorId> one, const std::vector<OperatorId>& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

}  // namespace

Candidates find_partitions(const TrainingGraph& training, const FusedGraph& fused, const Target& target,
                           const std::vector<std::vector<TensorId>>& callers_contiguous_groups) {
  const PartitionBuilder builder(training, fused);
  PartitionSet set(builder, callers_contiguous_groups);
  add_groups(builder, set);
  AccumulationPartitions sums(builder, set, target.reads_while_multiplying);
  const std::vector<Stacking> stackings = add_stacks(builder, set, sums);
  sums.add_sums();
  add_joined_operands(builder, set);
  std::vector<OperatorId> further;
  if (target.gemm_epilogues.of_results) further = add_epilogues(builder, set, stackings, target.gemm_epilogues);
  // The rest of kernels when products absorb all that they can, by epilogues, by additions, or by both.
  add_rest_of_groups(builder, set, set.absorbable());
  add_rest_of_groups(builder, set, sums.summable());
  add_rest_of_groups(builder, set, joined(set.absorbable(), sums.summable()));
  add_rest_of_groups(builder, set, joined(set.absorbable(), further));
  if (target.fused_attention) add_attentions(builder, set);
  return set.finish();
}

Partition conversion_partition(const Graph& graph, TensorId tensor) {
  Partition partition;
  partition.name = concat(graph.tensor(tensor).name, " conversion");
  for (const DimId dim : graph.tensor(tensor).dims) {
    if (graph.extent(dim) > 1) partition.space.push_back({dim, graph.extent(dim), true});
  }
  partition.reads = partition.writes = {tensor};
  return partition;
}

}  // namespace millrace
