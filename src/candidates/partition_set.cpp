#include "candidates/partition_set.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
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
  const size_t point = choice_point_of(one.operators.front());
  for (const OperatorId op : other.operators) {
    parent_[choice_point_of(op)] = point;
    parent_[op.at()] = point;  // path compression
  }
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

namespace {

// Partitions in order, each of which is taken when no other one that is left writes what it reads.
class Waiting {
 public:
  explicit Waiting(const std::vector<PartitionCandidates>& all) : all_(all), missing_(all.size(), 0) {
    for (size_t k = 0; k < all.size(); ++k) {
      left_.insert(k);
      for (const TensorId tensor : all[k].partition.writes) ++writers_[tensor];
    }
    for (size_t k = 0; k < all.size(); ++k) {
      for (const TensorId tensor : all[k].partition.reads) {
        if (!writers_.contains(tensor)) continue;
        readers_[tensor].push_back(k);
        ++missing_[k];
      }
      if (missing_[k] == 0) ready_.insert(k);
    }
  }

  bool empty() const { return left_.empty(); }
  const std::set<size_t>& left() const { return left_; }

  // The first one that is ready, if there is one.
  std::optional<size_t> first() const { return ready_.empty() ? std::nullopt : std::optional(*ready_.begin()); }

  void remove(size_t number) {
    left_.erase(number);
    ready_.erase(number);
    for (const TensorId tensor : all_[number].partition.writes) {
      if (--writers_[tensor] > 0) continue;
      for (const size_t reader : readers_[tensor]) {
        if (--missing_[reader] == 0 && left_.contains(reader)) ready_.insert(reader);
      }
    }
  }

 private:
  const std::vector<PartitionCandidates>& all_;
  std::vector<size_t> missing_;  // tensors that a partition waits for
  std::map<TensorId, size_t> writers_;
  std::map<TensorId, std::vector<size_t>> readers_;
  std::set<size_t> left_;
  std::set<size_t> ready_;
};

}  // namespace

// Every partition comes after all that can write what it reads; those of forward come before those of backward.
void PartitionSet::sort_partitions() {
  const auto last = [](const Partition& partition) {
    return *std::max_element(partition.operators.begin(), partition.operators.end());
  };
  std::stable_sort(found_.partitions.begin(), found_.partitions.end(),
                   [&](const auto& l, const auto& r) { return last(l.partition) < last(r.partition); });
  std::vector<size_t> order;
  for (Waiting waiting(found_.partitions); !waiting.empty();) {
    const std::optional<size_t> ready = waiting.first();
    if (ready) order.push_back(*ready);
    waiting.remove(ready ? *ready : drop_last(waiting.left()));
  }
  std::vector<PartitionCandidates> sorted;
  for (const size_t number : order) sorted.push_back(std::move(found_.partitions[number]));
  found_.partitions = std::move(sorted);
}

// Rejects the last partition that is not a kernel, to break a cycle.
size_t PartitionSet::drop_last(const std::set<size_t>& left) {
  const size_t number = *std::find_if(left.rbegin(), left.rend(),
                                      [&](size_t k) { return found_.partitions[k].partition.members.empty(); });
  const Partition& dropped = found_.partitions[number].partition;
  const bool named =
      dropped.product.has_epilogue() || dropped.product.adds() || dropped.kind == PartitionKind::attention;
  reject(concat(dropped.name, named ? "" : " stacked", ": ", kCycle));
  return number;
}

}  // namespace millrace
