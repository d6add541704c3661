#include "fusion/group.h"

#include <algorithm>

namespace millrace {
namespace {

// Indices of extent one of the operators whose outputs a join places, and of those that compute them.
std::set<std::pair<OperatorId, size_t>> joined_indices(const Graph& graph, const std::vector<OperatorId>& producers) {
  std::set<std::pair<OperatorId, size_t>> joined;
  std::vector<std::pair<TensorId, size_t>> open;  // axes of extent one
  const auto add = [&](const Access& access, size_t axis) {
    if (graph.extent(graph.tensor(access.tensor).dims[axis]) == 1) open.emplace_back(access.tensor, axis);
  };
  const auto runs_far = [&](const Operator& op, const Position& position) {
    return std::any_of(position.terms.begin(), position.terms.end(),
                       [&](const IndexTerm& term) { return graph.extent(op.space[as_index(term.index)]) > 1; });
  };
  for (const Operator& op : graph.operators) {
    if (op.kind != OperatorKind::join) continue;
    for (const Access& input : op.inputs) {
      for (size_t axis = 0; axis < input.axes.size(); ++axis) {
        if (runs_far(op, input.axes[axis])) add(input, axis);
      }
    }
  }
  while (!open.empty()) {
    const auto [tensor, axis] = open.back();
    open.pop_back();
    const OperatorId producer = producers[tensor.at()];
    if (!producer.valid()) continue;
    const Operator& op = graph.operators[producer.at()];
    for (const Access& output : op.outputs) {
      if (output.tensor != tensor || output.axes[axis].terms.size() != 1) continue;
      const int index = output.axes[axis].index();
      if (!joined.emplace(producer, as_index(index)).second) continue;
      for (const Access& input : op.inputs) {
        for (size_t k = 0; k < input.axes.size(); ++k) {
          if (input.axes[k].stride_along(index) != 0) add(input, k);
        }
      }
    }
  }
  return joined;
}

}  // namespace

Neighbourhood::Neighbourhood(const TrainingGraph& training)
    : graph(training.graph),
      producers(producers_of(graph)),
      readers(readers_of(graph)),
      leaves(graph.tensors.size(), false),
      plain(std::all_of(graph.operators.begin(), graph.operators.end(),
                        [&](const Operator& op) { return has_plain_accesses(graph, op); })),
      joined(joined_indices(graph, producers)) {
  for (size_t k = 0; k < graph.tensors.size(); ++k) words.push_back(words_of(graph, TensorId(k)));
  for (const Output& result : graph.results) leaves[result.tensor.at()] = true;
  for (const TensorId gradient : training.argument_gradients) {
    if (gradient.valid()) leaves[gradient.at()] = true;
  }
}

Group single(const Neighbourhood& near, OperatorId id) {
  Group group;
  const std::vector<DimId>& space = near.op(id).space;
  Member member{id, {}, std::vector<int64_t>(space.size(), 0)};
  for (size_t index = 0; index < space.size(); ++index) {
    const bool trivial = near.graph.extent(space[index]) == 1 && !near.joined.contains({id, index});
    member.labels.push_back(trivial ? kNoLabel : static_cast<int>(group.dims.size()));
    if (!trivial) group.dims.push_back(space[index]);
  }
  group.members.push_back(std::move(member));
  return group;
}

bool has_unit_labels(const Neighbourhood& near, const Group& group) {
  return std::any_of(group.dims.begin(), group.dims.end(), [&](DimId dim) { return near.graph.extent(dim) == 1; });
}

Group without_unit_labels(const Neighbourhood& near, Group group) {
  std::vector<int> renamed(group.dims.size(), kNoLabel);
  std::vector<DimId> dims;
  for (size_t label = 0; label < renamed.size(); ++label) {
    if (near.graph.extent(group.dims[label]) == 1) continue;
    renamed[label] = static_cast<int>(dims.size());
    dims.push_back(group.dims[label]);
  }
  for (Member& member : group.members) {
    for (int& label : member.labels) label = label == kNoLabel ? kNoLabel : renamed[as_index(label)];
  }
  group.dims = std::move(dims);
  return group;
}

bool is_member(const Group& group, OperatorId op) {
  const auto found = std::lower_bound(group.members.begin(), group.members.end(), op,
                                      [](const Member& member, OperatorId id) { return member.op < id; });
  return found != group.members.end() && found->op == op;
}

std::vector<Position> positions_of(const Member& member, const Access& access) {
  std::vector<Position> indices;
  for (size_t index = 0; index < member.labels.size(); ++index) {
    const int label = member.labels[index];
    indices.push_back(label == kNoLabel ? Position() : Position({{label, 1}}, -member.shifts[index]));
  }
  std::vector<Position> positions;
  for (const Position& axis : access.axes) positions.push_back(substituted(axis, indices));
  return positions;
}

}  // namespace millrace
