#include <algorithm>
#include <map>

#include "base/text.h"
#include "candidates/partition_kinds.h"
#include "candidates/product.h"

namespace millrace {
namespace {

// The position of an argument, or of its gradient, among the arguments. Tensors in a contiguous group of the caller
// have the position of the group's first one, and then their own in the group.
using Rank = std::pair<size_t, size_t>;
using Ranks = std::map<TensorId, Rank>;

Ranks rank_arguments(const TrainingGraph& training, const std::vector<std::vector<TensorId>>& contiguous_groups) {
  const std::vector<TensorId>& arguments = training.graph.arguments;
  std::map<TensorId, size_t> position;
  for (size_t k = 0; k < arguments.size(); ++k) {
    position[arguments[k]] = k;
    if (training.argument_gradients[k].valid()) position[training.argument_gradients[k]] = k;
  }
  Ranks in_group;
  for (const std::vector<TensorId>& group : contiguous_groups) {
    size_t first = arguments.size();
    for (const TensorId tensor : group) first = position.contains(tensor) ? std::min(first, position[tensor]) : first;
    for (size_t k = 0; k < group.size(); ++k) in_group[group[k]] = {first, k};
  }
  Ranks ranks;
  for (size_t k = 0; k < arguments.size(); ++k) {
    const TensorId gradient = training.argument_gradients[k];
    const auto rank = [&](TensorId own, TensorId other) {
      for (const TensorId tensor : {own, other}) {
        if (const auto found = in_group.find(tensor); found != in_group.end()) return found->second;
      }
      return Rank{k, 0};
    };
    ranks[arguments[k]] = rank(arguments[k], gradient);
    if (gradient.valid()) ranks[gradient] = rank(gradient, arguments[k]);
  }
  return ranks;
}

// Stacks of forward and backward get one order, that of their arguments, so that tensors which are adjacent for one of
// them are adjacent for the others too.
void put_in_order(const Graph& graph, const Ranks& ranks, Stacking& stacking) {
  const auto ranks_of = [&](OperatorId id) {
    std::vector<Rank> found;
    const Operator& op = graph.operators[id.at()];
    for (const std::vector<Access>* accesses : {&op.inputs, &op.outputs}) {
      for (const Access& access : *accesses) {
        if (const auto rank = ranks.find(access.tensor); rank != ranks.end()) found.push_back(rank->second);
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  };
  std::stable_sort(stacking.contractions.begin(), stacking.contractions.end(),
                   [&](OperatorId l, OperatorId r) { return ranks_of(l) < ranks_of(r); });
}

void add_stack(const PartitionBuilder& builder, PartitionSet& set, AccumulationPartitions& sums,
               const Stacking& stacking) {
  const std::vector<OperatorId>& contractions = stacking.contractions;
  const bool summed = stacking.kind == Stacking::Kind::summed_results;
  OrRejected<Product> product = stacked_product(builder.graph(), contractions, stacking.kind);
  if (!product) return set.reject_stack(contractions, product.reason());
  const bool accumulates = summed && sums.add_stack(contractions, *product);
  Partition partition;
  partition.kind = PartitionKind::contraction;
  partition.operators = contractions;
  if (summed) {
    const std::optional<ProductSum> sum = sum_of(builder.graph(), builder.readers(), contractions);
    if (!sum && accumulates) return;
    if (!sum) return set.reject_stack(contractions, "the program adds them in another order");
    product->tensors[2] = {sum->sum};
    partition.operators.insert(partition.operators.end(), sum->additions.begin(), sum->additions.end());
    add_rest_of_groups(builder, set, sum->additions);
  }
  partition.pass = builder.op(contractions.front()).pass;
  partition.name = join(builder.names_of(contractions), " + ");
  builder.find_movement(partition);
  set.place_stacks(*product);
  partition.product = std::move(*product);
  set.add(std::move(partition));
}

}  // namespace

std::vector<Stacking> add_stacks(const PartitionBuilder& builder, PartitionSet& set, AccumulationPartitions& sums) {
  const Ranks ranks = rank_arguments(builder.training(), set.contiguous_groups());
  std::vector<Stacking> by_size = builder.fused().stackings;
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const auto& l, const auto& r) { return l.contractions.size() > r.contractions.size(); });
  for (Stacking& stacking : by_size) {
    put_in_order(builder.graph(), ranks, stacking);
    add_stack(builder, set, sums, stacking);
  }
  return by_size;
}

}  // namespace millrace
