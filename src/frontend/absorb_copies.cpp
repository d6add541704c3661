// absorb_copies: see split_axes.h.
#include <algorithm>

#include "frontend/split_axes.h"
#include "frontend/view_parts.h"

namespace millrace {
namespace {

// Whether the operator copies all of a computed tensor and keeps the order of its elements; the copy may have fewer
// axes.
bool keeps_order(const Graph& graph, const Operator& op) {
  if (op.kind != OperatorKind::copy || op.inputs[0].axes != in_order(op.space.size())) return false;
  const Tensor& from = graph.tensor(op.inputs[0].tensor);
  for (size_t axis = 0; axis < from.dims.size(); ++axis) {
    if (graph.extent(from.dims[axis]) != graph.extent(op.space[axis])) return false;
  }
  return from.role == TensorRole::computed && from.dtype == graph.tensor(op.outputs[0].tensor).dtype;
}

}  // namespace

std::set<std::string> whole_copies(const Graph& graph) {
  std::set<std::string> names;
  for (const Operator& op : graph.operators) {
    if (keeps_order(graph, op) && op.outputs[0].axes == op.inputs[0].axes) names.insert(op.name);
  }
  return names;
}

void absorb_copies(Graph& graph, const std::set<std::string>& kept) {
  std::vector<bool> is_result(graph.tensors.size(), false);
  for (const Output& result : graph.results) is_result[result.tensor.at()] = true;
  std::vector<bool> absorbed(graph.operators.size(), false);
  std::vector<OperatorId> merged_by(graph.tensors.size());  // the copy that merges the axes of a tensor
  for (const bool results_first : {true, false}) {
    for (size_t k = 0; k < graph.operators.size(); ++k) {
      const Operator& op = graph.operators[k];
      if (kept.contains(op.name) || !keeps_order(graph, op)) continue;
      if (is_result[op.outputs[0].tensor.at()] != results_first) continue;
      const size_t from = op.inputs[0].tensor.at();
      if (is_result[from] || merged_by[from].valid()) continue;
      merged_by[from] = OperatorId(k);
      absorbed[k] = true;
    }
  }
  if (std::find(absorbed.begin(), absorbed.end(), true) == absorbed.end()) return;
  for (const Operator& op : graph.operators) {
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      const Access& input = op.inputs[k];
      // A diagonal is taken of whole axes, and ids select positions on a whole axis.
      if (!takes_diagonal(input) && !is_gathered_table(op, k)) continue;
      OperatorId& copy = merged_by[input.tensor.at()];
      if (copy.valid()) absorbed[copy.at()] = false;
      copy = {};
    }
  }
  const std::vector<Operator> before = graph.operators;
  const auto redirect = [&](Access& access) {
    while (merged_by[access.tensor.at()].valid()) {
      const Access& merged = before[merged_by[access.tensor.at()].at()].outputs[0];
      std::vector<Position> axes;
      for (const Position& axis : merged.axes) axes.push_back(substituted(axis, access.axes));
      access = {merged.tensor, std::move(axes)};
    }
  };
  std::vector<Operator> operators;
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    if (absorbed[k]) {
      // The copy gets the name that the program gave the tensor.
      std::swap(graph.tensors[before[k].inputs[0].tensor.at()].name,
                graph.tensors[before[k].outputs[0].tensor.at()].name);
      continue;
    }
    Operator& op = operators.emplace_back(graph.operators[k]);
    for (Access& input : op.inputs) redirect(input);
    for (Access& output : op.outputs) redirect(output);
  }
  graph.operators = std::move(operators);
}

}  // namespace millrace
