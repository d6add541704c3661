#include "candidates/partition_set.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/text.h"

namespace millrace {

PartitionSet::PartitionSet(const PartitionBuilder& builder,
                           std::vector<std::vector<TensorId>> callers_contiguous_groups)
    : builder_(builder), parent_(builder.graph().operators.size()) {
  std::iota(parent_.begin(), parent_.end(), size_t{0});
  rules_.optional = builder.training().statistics;
  found_.callers_contiguous_groups = callers_contiguous_groups.size();
  found_.contiguous_groups = std::move(callers_contiguous_groups);
}

std::string PartitionSet::add(Partition partition) {
  partition.name = names_.take(partition.name, " ");
  tie(partition, partition);
  found_.partitions.push_back({std::move(partition), 0, {}, {}});
  return found_.partitions.back().partition.name;
}

void PartitionSet::reject_stack(const std::vector<OperatorId>& contractions, const std::string& reason) {
  reject(concat(join(builder_.names_of(contractions), " + "), " stacked: ", reason));
}

void PartitionSet::reject_absorbing(const std::vector<OperatorId>& contractions,
                                    const std::vector<OperatorId>& absorbed, const std::string& reason) {
  reject(concat(builder_.name_with_absorbed(contractions, absorbed), ": ", reason));
}

void PartitionSet::tie(const Partition& one, const Partition& other) {
  for (const OperatorId op : other.operators) parent_[choice_point_of(op)] = choice_point_of(one.operators.front());
}

size_t PartitionSet::choice_point_of(OperatorId op) const {
  size_t number = op.at();
  while (parent_[number] != number) number = parent_[number];
  return number;
}

void PartitionSet::place_stacks(Product& product) {
  for (size_t operand = 0; operand < kOperands; ++operand) {
    if (product.operand(operand).size() > 1) product.packed[operand] = !make_adjacent(product.operand(operand));
  }
}

// Whether the tensors are adjacent in some contiguous group, or will be. The caller's tensors cannot be moved.
bool PartitionSet::make_adjacent(const std::vector<TensorId>& tensors) {
  for (const std::vector<TensorId>& group : found_.contiguous_groups) {
    if (std::search(group.begin(), group.end(), tensors.begin(), tensors.end()) != group.end()) return true;
    for (const TensorId tensor : tensors) {
      if (std::find(group.begin(), group.end(), tensor) != group.end()) return false;
    }
  }
  if (std::any_of(tensors.begin(), tensors.end(), [&](TensorId t) { return builder_.callers()[t.at()]; })) return false;
  if (std::set<TensorId>(tensors.begin(), tensors.end()).size() != tensors.size()) return false;
  found_.contiguous_groups.push_back(tensors);
  return true;
}

std::vector<ChoicePoint> PartitionSet::choice_points() const {
  ChoicePointRules rules = rules_;
  for (size_t op = 0; op < parent_.size(); ++op) rules.choice_point_of.push_back(choice_point_of(OperatorId(op)));
  return find_choice_points(found_.partitions, builder_.fused().groups, rules);
}

Candidates PartitionSet::finish() {
  sort_partitions();
  found_.choice_points = choice_points();
  return std::move(found_);
}

// Every partition comes after all that can write what it reads; those of forward come before those of backward.
void PartitionSet::sort_partitions() {
  std::vector<PartitionCandidates> sorted;
  std::vector<PartitionCandidates> open = std::move(found_.partitions);
  const auto last = [](const Partition& partition) {
    return *std::max_element(partition.operators.begin(), partition.operators.end());
  };
  std::stable_sort(open.begin(), open.end(),
                   [&](const auto& l, const auto& r) { return last(l.partition) < last(r.partition); });
  while (!open.empty()) {
    std::set<TensorId> missing;
    for (const PartitionCandidates& waiting : open)
      missing.insert(waiting.partition.writes.begin(), waiting.partition.writes.end());
    const auto ready = std::find_if(open.begin(), open.end(), [&](const PartitionCandidates& waiting) {
      return std::none_of(waiting.partition.reads.begin(), waiting.partition.reads.end(),
                          [&](TensorId t) { return missing.contains(t); });
    });
    if (ready != open.end()) {
      sorted.push_back(std::move(*ready));
      open.erase(ready);
      continue;
    }
    const auto stacked = std::find_if(open.rbegin(), open.rend(), [](const PartitionCandidates& waiting) {
      return waiting.partition.members.empty();
    });
    const Partition& dropped = stacked->partition;
    const bool named =
        dropped.product.has_epilogue() || dropped.product.adds() || dropped.kind == PartitionKind::attention;
    reject(concat(dropped.name, named ? "" : " stacked", ": ", kCycle));
    open.erase(std::next(stacked).base());
  }
  found_.partitions = std::move(sorted);
}

}  // namespace millrace
