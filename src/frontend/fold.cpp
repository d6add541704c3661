#include "frontend/fold.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace millrace {
namespace {

bool is_scale(const Graph& graph, const Access& access) {
  const TensorRole role = graph.tensor(access.tensor).role;
  return role == TensorRole::scalar || role == TensorRole::constant;
}

// Which input of `op` scales the other by a number: 1 for x / c, either for x * c; -1 for none.
int scale_position(const Graph& graph, const Operator& op) {
  if (op.kind == OperatorKind::multiply && is_scale(graph, op.inputs[0])) return 0;
  if (op.kind == OperatorKind::multiply && is_scale(graph, op.inputs[1])) return 1;
  const bool by_constant =
      op.kind == OperatorKind::divide && graph.tensor(op.inputs[1].tensor).role == TensorRole::constant;
  return by_constant && graph.tensor(op.inputs[1].tensor).value != 0 ? 1 : -1;
}

// The constant 1/c, one for each c.
TensorId reciprocal(Graph& graph, std::map<TensorId, TensorId>& known, TensorId constant) {
  const auto [entry, fresh] = known.try_emplace(constant, TensorId(graph.tensors.size()));
  if (fresh) {
    const Tensor& c = graph.tensor(constant);
    graph.tensors.push_back({concat("1/", c.name), DType::float64, {}, TensorRole::constant, 1 / c.value});
  }
  return entry->second;
}

}  // namespace

void fold_scales(Graph& graph) {
  const std::vector<OperatorId> producers = producers_of(graph);
  const std::vector<std::vector<OperatorId>> readers = readers_of(graph);
  std::vector<bool> is_result(graph.tensors.size(), false);
  for (const Output& result : graph.results) is_result[result.tensor.at()] = true;
  std::vector<OperatorId> producer_now = producers;  // as chains of scalings fold, the contraction writes later tensors
  std::map<TensorId, TensorId> reciprocals;
  std::vector<bool> gone(graph.operators.size(), false);
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    const int position = scale_position(graph, graph.operators[k]);
    if (position < 0) continue;
    const Operator op = graph.operators[k];
    const Access& scaled = op.inputs[as_index(1 - position)];
    const OperatorId producer = producer_now[scaled.tensor.at()];
    const bool folds = producer.valid() && graph.operators[producer.at()].kind == OperatorKind::contraction &&
                       readers[scaled.tensor.at()].size() == 1 && !is_result[scaled.tensor.at()] &&
                       is_whole(graph, op, scaled);
    if (!folds) continue;
    TensorId scale = op.inputs[as_index(position)].tensor;
    if (op.kind == OperatorKind::divide) scale = reciprocal(graph, reciprocals, scale);
    Operator& contraction = graph.operators[producer.at()];
    contraction.inputs.push_back({scale, {}});
    Access output{op.outputs[0].tensor, {}};  // a result may merge axes
    for (const Position& axis : op.outputs[0].axes)
      output.axes.push_back(substituted(axis, contraction.outputs[0].axes));
    contraction.outputs[0] = std::move(output);
    producer_now[op.outputs[0].tensor.at()] = producer;
    gone[k] = true;
  }
  size_t kept = 0;
  for (size_t k = 0; k < gone.size(); ++k) {
    if (gone[k]) continue;
    if (kept != k) graph.operators[kept] = std::move(graph.operators[k]);
    ++kept;
  }
  graph.operators.resize(kept);
}

void remove_unused(Graph& graph) {
  std::vector<bool> used(graph.tensors.size(), false);
  for (const TensorId argument : graph.arguments) used[argument.at()] = true;
  for (const Output& result : graph.results) used[result.tensor.at()] = true;
  std::vector<Operator> operators;
  for (size_t k = graph.operators.size(); k-- > 0;) {
    Operator& op = graph.operators[k];
    const bool needed =
        std::any_of(op.outputs.begin(), op.outputs.end(), [&](const Access& y) { return used[y.tensor.at()]; });
    if (!needed) continue;
    for (const Access& input : op.inputs) used[input.tensor.at()] = true;
    for (const Access& output : op.outputs) used[output.tensor.at()] = true;
    operators.push_back(std::move(op));
  }
  std::reverse(operators.begin(), operators.end());
  graph.operators = std::move(operators);

  std::vector<TensorId> renumbered(graph.tensors.size());
  std::vector<Tensor> tensors;
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    if (!used[k]) continue;
    renumbered[k] = TensorId(tensors.size());
    tensors.push_back(std::move(graph.tensors[k]));
  }
  graph.tensors = std::move(tensors);
  const auto renumber = [&](TensorId& id) { id = renumbered[id.at()]; };
  for (Operator& op : graph.operators) {
    for (Access& input : op.inputs) renumber(input.tensor);
    for (Access& output : op.outputs) renumber(output.tensor);
  }
  for (TensorId& argument : graph.arguments) renumber(argument);
  for (Output& result : graph.results) renumber(result.tensor);
}

}  // namespace millrace
