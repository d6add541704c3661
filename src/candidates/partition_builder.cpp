#include "candidates/partition_builder.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "candidates/choice_points.h"
#include "candidates/product.h"

namespace millrace {
namespace {

constexpr size_t kNoGroup = static_cast<size_t>(-1);

std::vector<bool> callers_tensors(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  std::vector<bool> callers(graph.tensors.size(), false);
  for (const TensorId argument : graph.arguments) callers[argument.at()] = true;
  for (const Output& result : graph.results) callers[result.tensor.at()] = true;
  for (const TensorId gradient : training.result_gradients) callers[gradient.at()] = true;
  for (const TensorId gradient : training.argument_gradients) {
    if (gradient.valid()) callers[gradient.at()] = true;
  }
  return callers;
}

}  // namespace

PartitionBuilder::PartitionBuilder(const TrainingGraph& training, const FusedGraph& fused)
    : training_(training),
      graph_(training.graph),
      fused_(fused),
      producers_(producers_of(graph_)),
      readers_(readers_of(graph_)),
      callers_(callers_tensors(training)),
      group_of_(graph_.operators.size(), kNoGroup) {
  for (size_t number = 0; number < fused.groups.size(); ++number) {
    for (const OperatorId member : fused.groups[number].members) group_of_[member.at()] = number;
  }
  for (std::vector<OperatorId>& readers : readers_)
    std::erase_if(readers, [&](OperatorId reader) { return has(training.statistics, reader); });
}

std::vector<const FusedOperator*> PartitionBuilder::groups_with(const std::vector<OperatorId>& operators) const {
  std::set<size_t> numbers;
  for (const OperatorId id : operators) numbers.insert(group_of_[id.at()]);
  numbers.erase(kNoGroup);
  std::vector<const FusedOperator*> groups;
  for (const size_t number : numbers) groups.push_back(&fused_.groups[number]);
  return groups;
}

void PartitionBuilder::find_movement(Partition& partition) const {
  std::set<TensorId> reads;
  const auto inside = [&](OperatorId id) { return has(partition.operators, id); };
  for (const OperatorId id : partition.operators) {
    for (const Access& input : op(id).inputs) {
      const OperatorId producer = producers_[input.tensor.at()];
      const TensorRole role = graph_.tensor(input.tensor).role;
      const bool number = role == TensorRole::scalar || role == TensorRole::constant;
      if (!number && !(producer.valid() && inside(producer))) reads.insert(input.tensor);
    }
    for (const Access& output : op(id).outputs) {
      const std::vector<OperatorId>& readers = readers_[output.tensor.at()];
      const bool needed = callers_[output.tensor.at()] ||
                          std::any_of(readers.begin(), readers.end(), [&](OperatorId r) { return !inside(r); });
      if (needed) partition.writes.push_back(output.tensor);
    }
  }
  partition.reads.assign(reads.begin(), reads.end());
}

Partition PartitionBuilder::kernel(const FusedOperator& group, const std::vector<size_t>& members) const {
  Partition partition;
  partition.pass = group.pass;
  for (const FusedIndex& index : group.space)
    partition.space.push_back({index.dim, graph_.extent(index.dim), index.outer});
  for (const size_t member : members) {
    partition.members.push_back(group.members[member]);
    partition.index_of.push_back(group.index_of[member]);
    partition.shift_of.push_back(group.shift_of[member]);
  }
  partition.operators = partition.members;
  find_movement(partition);
  return partition;
}

Partition PartitionBuilder::single(OperatorId id) const {
  const Operator& own = op(id);
  Partition partition;
  partition.name = own.name;
  partition.pass = own.pass;
  partition.operators = partition.members = {id};
  partition.index_of.emplace_back();
  for (size_t index = 0; index < own.space.size(); ++index) {
    const int64_t extent = graph_.extent(own.space[index]);
    partition.index_of.back().push_back(extent == 1 ? kNoIndex : static_cast<int>(partition.space.size()));
    if (extent > 1) partition.space.push_back({own.space[index], extent, !own.reduced[index]});
  }
  find_movement(partition);
  if (own.kind == OperatorKind::contraction) {
    partition.kind = PartitionKind::contraction;
    partition.product = product_of(graph_, own);
  }
  return partition;
}

Partition PartitionBuilder::with_absorbed(const std::vector<OperatorId>& contractions,
                                          const std::vector<OperatorId>& absorbed) const {
  Partition partition;
  partition.kind = PartitionKind::contraction;
  partition.pass = op(contractions.front()).pass;
  partition.operators = contractions;
  partition.operators.insert(partition.operators.end(), absorbed.begin(), absorbed.end());
  partition.name = name_with_absorbed(contractions, absorbed);
  find_movement(partition);
  return partition;
}

std::vector<std::string> PartitionBuilder::names_of(const std::vector<OperatorId>& operators) const {
  std::vector<std::string> names;
  for (const OperatorId id : operators) names.push_back(op(id).name);
  return names;
}

std::string PartitionBuilder::name_with_absorbed(const std::vector<OperatorId>& contractions,
                                                 const std::vector<OperatorId>& absorbed) const {
  return concat(join(names_of(contractions), " + "), " with ", join(names_of(absorbed), ", "));
}

bool PartitionBuilder::is_in_cycle(const Partition& partition) const {
  const auto inside = [&](OperatorId id) { return has(partition.operators, id); };
  // Operators are in order, so only one before the partition's last can lead back into it.
  const OperatorId last = *std::max_element(partition.operators.begin(), partition.operators.end());
  std::set<OperatorId> seen;
  std::vector<OperatorId> open;
  const auto follow = [&](TensorId tensor) {
    for (const OperatorId reader : readers_[tensor.at()]) {
      if (reader < last && !inside(reader) && seen.insert(reader).second) open.push_back(reader);
    }
  };
  for (const TensorId tensor : partition.writes) follow(tensor);
  while (!open.empty()) {
    const Operator& next = op(open.back());
    open.pop_back();
    for (const Access& output : next.outputs) {
      const std::vector<OperatorId>& readers = readers_[output.tensor.at()];
      if (std::any_of(readers.begin(), readers.end(), inside)) return true;
      follow(output.tensor);
    }
  }
  return false;
}

bool PartitionBuilder::leaves_kernel(const FusedOperator& group, const std::vector<OperatorId>& absorbed) const {
  const std::vector<size_t> rest = rest_of(group, absorbed);
  if (rest.size() == group.members.size() || rest.size() < 2) return true;
  std::set<int> used;
  for (const size_t member : rest) used.insert(group.index_of[member].begin(), group.index_of[member].end());
  used.erase(kNoIndex);
  return used.size() == group.space.size() && !is_in_cycle(kernel(group, rest));
}

bool PartitionBuilder::leaves_kernels(const std::vector<OperatorId>& absorbed) const {
  const std::vector<const FusedOperator*> groups = groups_with(absorbed);
  return std::all_of(groups.begin(), groups.end(),
                     [&](const FusedOperator* group) { return leaves_kernel(*group, absorbed); });
}

int64_t PartitionBuilder::words_moved(const Partition& partition) const {
  int64_t words = 0;
  for (const TensorId tensor : tensors_of(partition)) words += words_of(graph_, tensor);
  return words;
}

int64_t PartitionBuilder::words_saved(const std::vector<Partition>& products, const std::vector<OperatorId>& absorbed,
                                      const std::vector<OperatorId>& before) const {
  int64_t saved = 0;
  for (const Partition& partition : products) {
    Partition plain;
    std::copy_if(partition.operators.begin(), partition.operators.end(), std::back_inserter(plain.operators),
                 [&](OperatorId id) { return op(id).kind == OperatorKind::contraction; });
    find_movement(plain);
    saved += words_moved(plain) - words_moved(partition);
  }
  std::vector<OperatorId> all = before;
  all.insert(all.end(), absorbed.begin(), absorbed.end());
  for (const FusedOperator* group : groups_with(absorbed)) {
    const std::vector<size_t> whole = rest_of(*group, before);
    const std::vector<size_t> rest = rest_of(*group, all);
    if (rest.size() == whole.size()) continue;
    saved += words_moved(kernel(*group, whole));
    if (!rest.empty()) saved -= words_moved(kernel(*group, rest));
  }
  return saved;
}

std::vector<size_t> rest_of(const FusedOperator& group, const std::vector<OperatorId>& absorbed) {
  std::vector<size_t> rest;
  for (size_t k = 0; k < group.members.size(); ++k) {
    if (!has(absorbed, group.members[k])) rest.push_back(k);
  }
  return rest;
}

}  // namespace millrace
