#include "fusion/fuser.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/text.h"

namespace millrace {
namespace {

constexpr size_t kCousins = 32;  // if there are more than in any layer, only near ones are considered

// If a tensor has more readers than in any real layer, only readers within this distance are paired.
constexpr size_t kMany = 48;
constexpr size_t kNear = 12;

// Calls `visit` with the readers of a tensor that are near an operator: all, unless they are many.
template <class Visit>
void visit_near(const std::vector<OperatorId>& readers, OperatorId op, Visit visit) {
  const size_t far = readers.size() <= kMany ? kMany : kNear;
  const auto place = static_cast<size_t>(std::lower_bound(readers.begin(), readers.end(), op) - readers.begin());
  const size_t end = std::min(readers.size(), place + far + 1);
  for (size_t k = place - std::min(place, far); k < end; ++k) visit(readers[k]);
}

// Moves the edges of group b to group a. `back`: the same edges, from their ends.
void rename(std::vector<std::set<size_t>>& edges, std::vector<std::set<size_t>>& back, size_t b, size_t a) {
  const std::set<size_t> ends = std::move(edges[b]);
  edges[b].clear();
  for (const size_t end : ends) {
    back[end].erase(b);
    if (end == a) continue;
    back[end].insert(a);
    edges[a].insert(end);
  }
}

// Whether visit_near visits this reader when it visits the operator that writes the tensor, which comes before all
// readers.
bool is_near_producer(const std::vector<OperatorId>& readers, OperatorId reader) {
  return readers.size() <= kMany || !(readers[kNear] < reader);
}

}  // namespace

Fuser::Fuser(const Neighbourhood& near)
    : near_(near), order_(near.graph.operators.size(), [this](size_t group, const std::function<void(size_t)>& visit) {
        for (const size_t next : successors_[group]) visit(next);
      }) {
  for (size_t k = 0; k < near.graph.operators.size(); ++k) {
    groups_.push_back(summarized(near, single(near, OperatorId(k))));
    group_of_.push_back(k);
  }
  versions_.resize(groups_.size(), 0);
  rank_names();
  find_cousins();
  find_near_groups();
  find_edges();
}

// Forward comes before backward as a whole: paths between groups of one pass stay in it.
void Fuser::find_edges() {
  successors_.assign(groups_.size(), {});
  predecessors_.assign(groups_.size(), {});
  for (size_t k = 0; k < group_of_.size(); ++k) {
    for (const Access& output : near_.graph.operators[k].outputs) {
      for (const OperatorId reader : near_.readers[output.tensor.at()]) {
        const size_t from = group_of_[k];
        const size_t to = group_of_[reader.at()];
        if (from == to || near_.graph.operators[k].pass != near_.op(reader).pass) continue;
        successors_[from].insert(to);
        predecessors_[to].insert(from);
      }
    }
  }
}

void Fuser::rank_names() {
  std::vector<size_t> by_name(groups_.size());
  for (size_t k = 0; k < by_name.size(); ++k) by_name[k] = k;
  std::sort(by_name.begin(), by_name.end(),
            [&](size_t l, size_t r) { return near_.graph.operators[l].name < near_.graph.operators[r].name; });
  name_rank_.resize(by_name.size());
  for (size_t rank = 0; rank < by_name.size(); ++rank) name_rank_[by_name[rank]] = rank;
}

// Cousins: operators on the results, or on the other operands, of contractions that share an operand. When the
// contractions are stacked, their tensors become one, and so can the cousins: the paper's input biases and gradients.
void Fuser::find_cousins() {
  cousins_.resize(groups_.size());
  std::map<std::pair<TensorId, Pass>, std::vector<OperatorId>> sharing;
  for (size_t k = 0; k < near_.graph.operators.size(); ++k) {
    const OperatorId id(k);
    if (!near_.is_contraction(id)) continue;
    for (size_t side : {0U, 1U}) sharing[{near_.op(id).inputs[side].tensor, near_.op(id).pass}].push_back(id);
  }
  const auto add_pairs = [&](const std::vector<OperatorId>& operators) {
    for (size_t k = 0; k < operators.size(); ++k) {
      for (size_t m = k + 1; m < std::min(operators.size(), k + kCousins); ++m) {
        cousins_[operators[k].at()].push_back(operators[m]);
        cousins_[operators[m].at()].push_back(operators[k]);
      }
    }
  };
  for (const auto& [key, contractions] : sharing) {
    if (contractions.size() < 2) continue;
    std::map<OperatorKind, std::vector<OperatorId>> on_results;
    std::map<OperatorKind, std::vector<OperatorId>> on_operands;
    for (const OperatorId id : contractions) {
      const Operator& op = near_.op(id);
      const TensorId other = op.inputs[op.inputs[0].tensor == key.first ? 1 : 0].tensor;
      for (const auto& [tensor, lists] :
           {std::pair{op.outputs[0].tensor, &on_results}, std::pair{other, &on_operands}}) {
        for (const OperatorId reader : near_.readers[tensor.at()]) {
          if (!near_.is_contraction(reader) && near_.op(reader).pass == op.pass)
            (*lists)[near_.op(reader).kind].push_back(reader);
        }
      }
    }
    for (const auto* lists : {&on_results, &on_operands}) {
      for (const auto& [kind, operators] : *lists) add_pairs(operators);
    }
  }
}

std::vector<OperatorId> Fuser::neighbours(OperatorId id) const {
  std::vector<OperatorId> found = cousins_[id.at()];
  const Operator& op = near_.op(id);
  const auto add = [&](OperatorId other) { found.push_back(other); };
  for (const Access& input : op.inputs) {
    if (near_.words[input.tensor.at()] == 0) continue;
    const std::vector<OperatorId>& readers = near_.readers[input.tensor.at()];
    const OperatorId producer = near_.producers[input.tensor.at()];
    if (producer.valid() && is_near_producer(readers, id)) add(producer);
    visit_near(readers, id, add);
  }
  for (const Access& output : op.outputs) visit_near(near_.readers[output.tensor.at()], id, add);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  std::erase(found, id);
  return found;
}

void Fuser::find_near_groups() {
  near_groups_.resize(groups_.size());
  for (size_t k = 0; k < groups_.size(); ++k) {
    for (const OperatorId other : neighbours(OperatorId(k))) {
      if (near_.is_contraction(OperatorId(k)) || near_.is_contraction(other)) continue;
      if (near_.graph.operators[k].pass == near_.op(other).pass) near_groups_[k].insert(other.at());
    }
  }
}

OrRejected<Fuser::Merge> Fuser::try_merge(size_t a, size_t b) const {
  ++tries_;
  const std::vector<Member>& in_a = groups_[a].group.members;
  const std::vector<Member>& in_b = groups_[b].group.members;
  if (near_.is_contraction(in_a.front().op) || near_.is_contraction(in_b.front().op))
    return Rejection{"one is a contraction, which only absorbs scalings and epilogues"};
  if (near_.op(in_a.front().op).pass != near_.op(in_b.front().op).pass)
    return Rejection{"they run in different passes"};
  if (in_a.size() + in_b.size() > kMostMembers)
    return Rejection{concat("fused, they would have more than ", kMostMembers, " operators")};
  OrRejected<Merge> merge = try_united(a, b);
  // Labels of slices that both groups only read are matched where they are free. So the result may depend on the order.
  if (!merge && !near_.plain) {
    OrRejected<Merge> reversed = try_united(b, a);
    if (reversed) return reversed;
  }
  return merge;
}

OrRejected<Fuser::Merge> Fuser::try_united(size_t a, size_t b) const {
  OrRejected<Union> both = unite(near_, groups_[a], groups_[b]);
  if (!both) return Rejection{both.reason()};
  const int64_t saved = groups_[a].summary.words + groups_[b].summary.words - both->words;
  if (saved < 0) return Rejection{concat("fused, they would move ", -saved, " more words")};
  return Merge{a, b, std::move(*both), saved};
}

void Fuser::consider(size_t a, size_t b) {
  const OrRejected<Merge> merge = try_merge(a, b);
  if (!merge) return;
  const size_t name_a = name_rank_[groups_[a].summary.first_by_name.at()];
  const size_t name_b = name_rank_[groups_[b].summary.first_by_name.at()];
  candidates_.push({merge->saved, std::minmax(name_a, name_b), a, b, versions_[a], versions_[b]});
}

void Fuser::merge(size_t a, size_t b, const Merge& found) {
  order_.merge(a, b);
  for (const Member& member : groups_[b].group.members) group_of_[member.op.at()] = a;
  groups_[a] = merged(near_, std::move(groups_[found.first]), std::move(groups_[found.second]), found.both);
  groups_[b] = {};
  rename(near_groups_, near_groups_, b, a);
  rename(successors_, predecessors_, b, a);
  rename(predecessors_, successors_, b, a);
  ++versions_[a];
  versions_[b] = -1;
}

void Fuser::run() {
  std::vector<size_t> all(groups_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  consider(all);
  merge_candidates();
  consider(drop_unit_labels());
  merge_candidates();
}

// Considers the pairs with a group that is in the list, which is sorted.
void Fuser::consider(const std::vector<size_t>& groups) {
  for (const size_t group : groups) {
    for (const size_t other : near_groups_[group]) {
      if (other > group || !std::binary_search(groups.begin(), groups.end(), other)) consider(group, other);
    }
  }
}

// An index of extent one that did not become a part of a longer one affects no loop, so it must not keep groups apart.
// Dropping it earlier would keep groups out of joins.
std::vector<size_t> Fuser::drop_unit_labels() {
  std::vector<size_t> changed;
  for (size_t k = 0; k < groups_.size(); ++k) {
    if (!has_unit_labels(near_, groups_[k].group)) continue;
    groups_[k] = summarized(near_, without_unit_labels(near_, std::move(groups_[k].group)));
    ++versions_[k];
    changed.push_back(k);
  }
  return changed;
}

void Fuser::merge_candidates() {
  while (!candidates_.empty()) {
    const Candidate best = candidates_.top();
    candidates_.pop();
    if (versions_[best.a] != best.version_a || versions_[best.b] != best.version_b) continue;
    if (makes_cycle(best.a, best.b)) continue;
    const OrRejected<Merge> found = try_merge(best.a, best.b);
    merge(best.a, best.b, *found);
    for (const size_t other : near_groups_[best.a]) consider(best.a, other);
  }
}

void Fuser::restore(const FusedGraph& fused) {
  std::vector<size_t> numbers;
  for (const FusedOperator& op : fused.groups) {
    const size_t number = op.members.front().at();
    Group group;
    for (size_t k = 0; k < op.members.size(); ++k) {
      group.members.push_back({op.members[k], op.index_of[k], op.shift_of[k]});
      group_of_[op.members[k].at()] = number;
      versions_[op.members[k].at()] = k == 0 ? 0 : -1;
    }
    for (const FusedIndex& index : op.space) group.dims.push_back(index.dim);
    groups_[number] = summarized(near_, std::move(group));
    numbers.push_back(number);
  }
  find_edges();
  order_.assign(numbers);
}

std::vector<size_t> Fuser::order() const {
  std::vector<size_t> numbers;
  for (size_t k = 0; k < groups_.size(); ++k) {
    if (versions_[k] >= 0) numbers.push_back(k);
  }
  std::sort(numbers.begin(), numbers.end(),
            [&](size_t l, size_t r) { return order_.position(l) < order_.position(r); });
  return numbers;
}

}  // namespace millrace
