#include "fusion/fuser.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"

namespace millrace {
namespace {

std::set<OperatorKind> kinds_in(const Neighbourhood& near, const Group& group) {
  std::set<OperatorKind> kinds;
  for (const Member& member : group.members) kinds.insert(near.op(member.op).kind);
  return kinds;
}

bool share_a_tensor(const Neighbourhood& near, const Group& a, const Group& b) {
  std::set<TensorId> touched;
  const auto each = [&](const Group& group, auto visit) {
    for (const Member& member : group.members) {
      const Operator& op = near.op(member.op);
      for (const Access& access : op.inputs) visit(access.tensor);
      for (const Access& access : op.outputs) visit(access.tensor);
    }
  };
  each(a, [&](TensorId tensor) {
    if (words_of(near.graph, tensor) > 0) touched.insert(tensor);
  });
  bool shared = false;
  each(b, [&](TensorId tensor) { shared = shared || touched.contains(tensor); });
  return shared;
}

}  // namespace

Fuser::Fuser(const Neighbourhood& near)
    : near_(near), order_(near.graph.operators.size(), [this](size_t group, const std::function<void(size_t)>& visit) {
        for (const Member& member : groups_[group].members) {
          for (const Access& output : near_.op(member.op).outputs) {
            for (const OperatorId reader : near_.readers[output.tensor.at()]) {
              if (group_of_[reader.at()] != group) visit(group_of_[reader.at()]);
            }
          }
        }
      }) {
  for (size_t k = 0; k < near.graph.operators.size(); ++k) {
    groups_.push_back(single(near, OperatorId(k)));
    group_of_.push_back(k);
  }
  versions_.resize(groups_.size(), 0);
  cousins_.resize(groups_.size());
  find_cousins();
}

// Cousins: operators on the results, or on the other operands, of contractions that share an operand. When the
// contractions are stacked, their tensors become one, and so can the cousins: the paper's input biases and gradients.
void Fuser::find_cousins() {
  std::map<std::pair<TensorId, Pass>, std::vector<OperatorId>> sharing;
  for (size_t k = 0; k < near_.graph.operators.size(); ++k) {
    const OperatorId id(k);
    if (!near_.is_contraction(id)) continue;
    for (size_t side : {0U, 1U}) sharing[{near_.op(id).inputs[side].tensor, near_.op(id).pass}].push_back(id);
  }
  const auto add_pairs = [&](const std::vector<OperatorId>& operators) {
    constexpr size_t kMany = 32;  // of more operators than any layer has, consider only some pairs
    for (size_t k = 0; k < operators.size(); ++k) {
      for (size_t m = k + 1; m < std::min(operators.size(), k + kMany); ++m) {
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
  for (const Access& input : op.inputs) {
    if (words_of(near_.graph, input.tensor) == 0) continue;
    const OperatorId producer = near_.producers[input.tensor.at()];
    if (producer.valid()) found.push_back(producer);
    const std::vector<OperatorId>& readers = near_.readers[input.tensor.at()];
    found.insert(found.end(), readers.begin(), readers.end());
  }
  for (const Access& output : op.outputs) {
    const std::vector<OperatorId>& readers = near_.readers[output.tensor.at()];
    found.insert(found.end(), readers.begin(), readers.end());
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  std::erase(found, id);
  return found;
}

int64_t Fuser::words_of_group(const Group& group) const {
  const OrRejected<LoopNest> nest = find_loop_nest(near_, group);
  return nest ? movement_of(near_, group, *nest).words : 0;
}

OrRejected<Fuser::Merge> Fuser::try_merge(size_t a, size_t b) const {
  const Operator& first = near_.op(groups_[a].members.front().op);
  const Operator& second = near_.op(groups_[b].members.front().op);
  if (first.kind == OperatorKind::contraction || second.kind == OperatorKind::contraction)
    return Rejection{"one is a contraction, which only absorbs scalings and epilogues"};
  if (first.pass != second.pass) return Rejection{"they run in different passes"};
  const bool shared = share_a_tensor(near_, groups_[a], groups_[b]);
  if (!shared && kinds_in(near_, groups_[a]) != kinds_in(near_, groups_[b]))
    return Rejection{"they share no tensor and have different operators"};
  OrRejected<Merge> merge = try_united(groups_[a], groups_[b]);
  // Labels of slices that both only read are matched where they are free, which may depend on the order.
  if (!merge && !near_.plain) {
    OrRejected<Merge> reversed = try_united(groups_[b], groups_[a]);
    if (reversed) return reversed;
  }
  return merge;
}

OrRejected<Fuser::Merge> Fuser::try_united(const Group& a, const Group& b) const {
  OrRejected<Group> united = unite(near_, a, b);
  if (!united) return Rejection{united.reason()};
  const OrRejected<LoopNest> nest = find_loop_nest(near_, *united);
  if (!nest) return Rejection{nest.reason()};
  const int64_t saved = words_of_group(a) + words_of_group(b) - movement_of(near_, *united, *nest).words;
  if (saved < 0) return Rejection{concat("fused, they would move ", -saved, " more words")};
  return Merge{std::move(*united), saved};
}

std::string Fuser::name_of(size_t group) const {
  std::string name = near_.op(groups_[group].members.front().op).name;
  for (const Member& member : groups_[group].members) name = std::min(name, near_.op(member.op).name);
  return name;
}

void Fuser::consider(size_t a, size_t b) {
  const OrRejected<Merge> merge = try_merge(a, b);
  if (!merge) return;
  const std::string name_a = name_of(a);
  const std::string name_b = name_of(b);
  candidates_.push({merge->saved, concat(std::min(name_a, name_b), "\n", std::max(name_a, name_b)), a, b, versions_[a],
                    versions_[b]});
}

void Fuser::consider_neighbours(size_t group) {
  std::set<size_t> others;
  for (const Member& member : groups_[group].members) {
    for (const OperatorId neighbour : neighbours(member.op)) others.insert(group_of_[neighbour.at()]);
  }
  others.erase(group);
  for (const size_t other : others) consider(group, other);
}

void Fuser::merge(size_t a, size_t b, Group merged) {
  order_.merge(a, b);
  for (const Member& member : groups_[b].members) group_of_[member.op.at()] = a;
  groups_[a] = std::move(merged);
  groups_[b] = {};
  ++versions_[a];
  versions_[b] = -1;
}

void Fuser::run() {
  for (size_t k = 0; k < groups_.size(); ++k) {
    for (const OperatorId neighbour : neighbours(OperatorId(k))) {
      if (neighbour.at() > k) consider(k, neighbour.at());
    }
  }
  while (!candidates_.empty()) {
    const Candidate best = candidates_.top();
    candidates_.pop();
    if (versions_[best.a] != best.version_a || versions_[best.b] != best.version_b) continue;
    if (makes_cycle(best.a, best.b)) continue;
    OrRejected<Merge> found = try_merge(best.a, best.b);
    merge(best.a, best.b, std::move(found->group));
    consider_neighbours(best.a);
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
    groups_[number] = std::move(group);
    numbers.push_back(number);
  }
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
