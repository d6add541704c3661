#include "fusion/group_summary.h"

#include <algorithm>
#include <iterator>

#include "fusion/movement.h"

namespace millrace {
namespace {

template <class T>
void insert_sorted(std::vector<T>& sorted, const T& value) {
  const auto place = std::lower_bound(sorted.begin(), sorted.end(), value);
  if (place == sorted.end() || *place != value) sorted.insert(place, value);
}

LabelSet labels_of(const Member& member) {
  LabelSet labels = 0;
  for (const int label : member.labels) labels |= label == kNoLabel ? 0 : LabelSet{1} << label;
  return labels;
}

LabelSet labels_of(const std::vector<Position>& positions) {
  LabelSet labels = 0;
  for (const Position& position : positions) {
    for (const IndexTerm& term : position.terms) labels |= LabelSet{1} << term.index;
  }
  return labels;
}

void add_access(std::vector<LabelledAccess>& accesses, LabelledAccess access) {
  const bool known = std::any_of(accesses.begin(), accesses.end(), [&](const LabelledAccess& other) {
    return other.axes == access.axes && other.plain == access.plain;
  });
  if (!known) accesses.push_back(std::move(access));
}

// Whether two reads obviously touch the same elements; words_touched finds out in the other cases.
bool are_alike(const TensorUse& one, const TensorUse& other) {
  const auto anywhere = [](const TensorUse& use) {
    return use.op->kind != OperatorKind::join && use.op->kind != OperatorKind::gather;
  };
  return one.access() == other.access() && one.op->space == other.op->space && anywhere(one) && anywhere(other);
}

void add_use(const Neighbourhood& near, TensorId tensor, TensorSummary& summary, const TensorUse& use) {
  const bool known = summary.touched == near.words[tensor.at()] ||
                     std::any_of(summary.uses.begin(), summary.uses.end(),
                                 [&](const TensorUse& other) { return are_alike(other, use); });
  if (known) return;
  summary.uses.push_back(use);
  summary.touched = words_touched(near.graph, summary.uses);
}

bool is_scatter(const Graph& graph, const Operator& op) {
  if (op.kind != OperatorKind::scatter_add) return false;
  for (size_t index = 0; index < op.space.size(); ++index) {
    if (op.reduced[index] && graph.extent(op.space[index]) > 1) return true;
  }
  return false;
}

bool is_first_by_kind(const Neighbourhood& near, OperatorId one, OperatorId other) {
  const Operator& left = near.op(one);
  const Operator& right = near.op(other);
  return left.kind != right.kind ? left.kind < right.kind : left.name < right.name;
}

OperatorId first_of(OperatorId one, OperatorId other) {
  return !other.valid() || (one.valid() && one < other) ? one : other;
}

Reduction reduction_of(const Neighbourhood& near, const Member& member) {
  const Operator& op = near.op(member.op);
  Reduction reduction{member.op, labels_of(member)};
  for (size_t index = 0; index < member.labels.size(); ++index) {
    if (op.reduced[index] && member.labels[index] != kNoLabel) reduction.reduced |= LabelSet{1} << member.labels[index];
  }
  for (const Access& output : op.outputs) {
    reduction.mapped |= labels_of(positions_of(member, output)) & reduction.reduced;
    reduction.output_words += near.words[output.tensor.at()];
  }
  reduction.always_maps = op.kind == OperatorKind::log_sum_exp;  // it subtracts the maximum before it sums
  return reduction;
}

GroupSummary summary_of(const Neighbourhood& near, const Member& member) {
  GroupSummary summary;
  const Operator& op = near.op(member.op);
  const LabelSet space = labels_of(member);
  summary.spaces.distinct = {space};
  const Reduction reduction = reduction_of(near, member);
  if (reduction.reduced != 0) summary.spaces.reductions = {reduction};
  summary.spaces.first = summary.spaces.last = {member.op, space};
  summary.whole = runs_along_whole_indices(op.kind) ? space : 0;
  if (is_scatter(near.graph, op)) summary.scatter = member.op;
  summary.kinds = {op.kind};
  summary.first_by_name = member.op;
  summary.first_by_kind = member;
  for (size_t k = 0; k < op.inputs.size(); ++k) {
    const TensorId tensor = op.inputs[k].tensor;
    if (near.words[tensor.at()] == 0) continue;
    TensorSummary& own = summary.tensors[tensor];
    own.readers = 1;
    own.read_over = {space};
    if (op.kind == OperatorKind::gather && k == 0) own.gather = member.op;
    add_access(own.accesses, {member.op, positions_of(member, op.inputs[k]), is_plain(near.graph, op, op.inputs[k])});
    add_use(near, tensor, own, {&op, k});
  }
  for (const Access& output : op.outputs) {
    if (near.words[output.tensor.at()] == 0) continue;
    TensorSummary& own = summary.tensors[output.tensor];
    own.written = true;
    own.written_over = space;
    add_access(own.accesses, {member.op, positions_of(member, output), is_plain(near.graph, op, output)});
  }
  return summary;
}

TensorSummary united(const Neighbourhood& near, TensorId tensor, TensorSummary a, const TensorSummary& b) {
  std::vector<LabelledAccess> accesses;
  std::merge(a.accesses.begin(), a.accesses.end(), b.accesses.begin(), b.accesses.end(), std::back_inserter(accesses),
             [](const LabelledAccess& l, const LabelledAccess& r) { return l.op < r.op; });
  a.accesses.clear();
  for (LabelledAccess& access : accesses) add_access(a.accesses, std::move(access));
  for (const TensorUse& use : b.uses) add_use(near, tensor, a, use);
  for (const LabelSet space : b.read_over) insert_sorted(a.read_over, space);
  if (b.written) a.written_over = b.written_over;
  a.written = a.written || b.written;
  a.readers += b.readers;
  a.gather = first_of(a.gather, b.gather);
  return a;
}

void add_flows(GroupSpaces& spaces, const TensorSummary& from, const TensorSummary& to) {
  if (!from.written) return;
  for (const LabelSet space : to.read_over) {
    if (space != from.written_over) insert_sorted(spaces.flows, {from.written_over, space});
  }
}

void mark_used(GroupSpaces& spaces, OperatorId op) {
  const auto found = std::lower_bound(spaces.reductions.begin(), spaces.reductions.end(), op,
                                      [](const Reduction& reduction, OperatorId id) { return reduction.op < id; });
  if (found != spaces.reductions.end() && found->op == op) found->used_inside = true;
}

// A tensor is interim if all of its readers are inside.
MovedOnce written_once(const Neighbourhood& near, TensorId tensor, size_t readers) {
  const bool needed = near.leaves[tensor.at()] || readers < near.readers[tensor.at()].size();
  return needed ? MovedOnce{1, near.words[tensor.at()]} : MovedOnce();
}

int64_t words_in_nest(const Neighbourhood& near, const FusionGroup& group) {
  const OrRejected<LoopNest> nest = find_loop_nest(near.graph, group.group.dims, group.summary.spaces);
  if (!nest) return 0;
  const bool alone = group.group.members.size() == 1;
  return group.summary.once.words + (alone ? 0 : partial_words(near, group.group.dims, group.summary.spaces, *nest)) +
         reread_words(near, group, *nest);
}

}  // namespace

bool runs_along_whole_indices(OperatorKind kind) {
  return info_of(kind).operator_class != OperatorClass::elementwise || kind == OperatorKind::dropout;
}

std::vector<OperatorId> operators_of(const Group& group) {
  std::vector<OperatorId> operators;
  for (const Member& member : group.members) operators.push_back(member.op);
  return operators;
}

MovedOnce moved_once(const Neighbourhood& near, TensorId tensor, const TensorSummary& summary) {
  return summary.written ? written_once(near, tensor, summary.readers) : MovedOnce{1, summary.touched};
}

MovedOnce moved_together(const Neighbourhood& near, const SharedTensor& shared) {
  const auto& [tensor, a, b] = shared;
  if (a->written || b->written) return written_once(near, tensor, a->readers + b->readers);
  const int64_t all = near.words[tensor.at()];
  if (a->touched == all || b->touched == all) return {1, all};
  std::vector<TensorUse> uses = a->uses;
  uses.insert(uses.end(), b->uses.begin(), b->uses.end());
  return {1, words_touched(near.graph, uses)};
}

GroupSpaces united(const Neighbourhood& near, const GroupSpaces& a, const GroupSpaces& b,
                   const std::vector<SharedTensor>& shared) {
  GroupSpaces both;
  std::set_union(a.distinct.begin(), a.distinct.end(), b.distinct.begin(), b.distinct.end(),
                 std::back_inserter(both.distinct));
  std::merge(a.reductions.begin(), a.reductions.end(), b.reductions.begin(), b.reductions.end(),
             std::back_inserter(both.reductions), [](const Reduction& l, const Reduction& r) { return l.op < r.op; });
  std::set_union(a.flows.begin(), a.flows.end(), b.flows.begin(), b.flows.end(), std::back_inserter(both.flows));
  both.first = a.first.first < b.first.first ? a.first : b.first;
  both.last = a.last.first < b.last.first ? b.last : a.last;
  for (const SharedTensor& one : shared) {
    add_flows(both, *one.a, *one.b);
    add_flows(both, *one.b, *one.a);
    const bool passed = (one.a->written && one.b->readers > 0) || (one.b->written && one.a->readers > 0);
    if (passed) mark_used(both, near.producers[one.tensor.at()]);
  }
  return both;
}

void absorb(const Neighbourhood& near, GroupSummary& a, GroupSummary b) {
  std::vector<SharedTensor> shared;
  for (const auto& [tensor, own] : b.tensors) {
    const auto found = a.tensors.find(tensor);
    if (found != a.tensors.end()) shared.push_back({tensor, &found->second, &own});
  }
  a.spaces = united(near, a.spaces, b.spaces, shared);
  for (auto& [tensor, own] : b.tensors) {
    const auto [known, fresh] = a.tensors.try_emplace(tensor, std::move(own));
    if (!fresh) known->second = united(near, tensor, std::move(known->second), own);
  }
  a.whole |= b.whole;
  a.scatter = first_of(a.scatter, b.scatter);
  for (const OperatorKind kind : b.kinds) insert_sorted(a.kinds, kind);
  if (near.op(b.first_by_name).name < near.op(a.first_by_name).name) a.first_by_name = b.first_by_name;
  if (is_first_by_kind(near, b.first_by_kind.op, a.first_by_kind.op)) a.first_by_kind = std::move(b.first_by_kind);
}

FusionGroup summarized(const Neighbourhood& near, Group group) {
  FusionGroup made{std::move(group), {}};
  made.summary = summary_of(near, made.group.members.front());
  for (size_t k = 1; k < made.group.members.size(); ++k)
    absorb(near, made.summary, summary_of(near, made.group.members[k]));
  for (const auto& [tensor, own] : made.summary.tensors) {
    const MovedOnce moved = moved_once(near, tensor, own);
    made.summary.once.tensors += moved.tensors;
    made.summary.once.words += moved.words;
  }
  made.summary.words = words_in_nest(near, made);
  return made;
}

int64_t partial_words(const Neighbourhood& near, const std::vector<DimId>& dims, const GroupSpaces& spaces,
                      const LoopNest& nest) {
  int64_t words = 0;
  if (nest.across_grid.empty()) return words;
  for (const Reduction& reduction : spaces.reductions) {
    if (std::binary_search(nest.across_grid.begin(), nest.across_grid.end(), reduction.op))
      words += reduction.output_words;
  }
  return 2 * blocks_of(near.graph, dims, nest) * words;
}

bool may_reread(const LoopNest& nest) { return nest.reduces_rows && exceeds_fast_memory(nest); }

int64_t reread_words(const Neighbourhood& near, const FusionGroup& group, const LoopNest& nest) {
  if (!may_reread(nest)) return 0;
  const int loops = count_loops(near.graph, group.group.dims, group.summary.spaces, nest, operators_of(group.group));
  int64_t words = 0;
  for (const auto& [tensor, own] : group.summary.tensors) {
    if (own.written) continue;
    LabelSet labels = 0;
    for (const LabelledAccess& access : own.accesses) labels |= labels_of(access.axes);
    if ((labels & ~nest.outer) != 0) words += own.touched * (loops - 1);
  }
  return words;
}

}  // namespace millrace
