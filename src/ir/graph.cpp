#include "ir/graph.h"

#include <algorithm>
#include <numeric>

namespace millrace {

bool runs_along(const Access& access, size_t index) {
  return std::find(access.axes.begin(), access.axes.end(), static_cast<int>(index)) != access.axes.end();
}

std::vector<int> in_order(size_t count) {
  std::vector<int> axes(count);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

int64_t elements_of(const Graph& graph, TensorId tensor) {
  int64_t elements = 1;
  for (const DimId dim : graph.tensor(tensor).dims) elements *= graph.extent(dim);
  return elements;
}

int64_t words_of(const Graph& graph, TensorId tensor) {
  const TensorRole role = graph.tensor(tensor).role;
  return role == TensorRole::scalar || role == TensorRole::constant ? 0 : elements_of(graph, tensor);
}

int64_t points_of(const Graph& graph, const Operator& op) {
  int64_t points = 1;
  for (const DimId dim : op.space) points *= graph.extent(dim);
  return points;
}

std::vector<OperatorId> producers_of(const Graph& graph) {
  std::vector<OperatorId> producers(graph.tensors.size());
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    for (const Access& output : graph.operators[k].outputs) producers[output.tensor.at()] = OperatorId(k);
  }
  return producers;
}

const Operator* dropout_of(const Graph& graph, TensorId mask) {
  for (const Operator& op : graph.operators) {
    if (op.kind == OperatorKind::dropout && op.outputs[1].tensor == mask) return &op;
  }
  return nullptr;
}

bool is_computed_boolean(const Graph& graph, TensorId tensor) {
  return graph.tensor(tensor).dtype == DType::boolean && graph.tensor(tensor).role == TensorRole::computed;
}

std::vector<std::vector<OperatorId>> readers_of(const Graph& graph) {
  std::vector<std::vector<OperatorId>> readers(graph.tensors.size());
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    for (const Access& input : graph.operators[k].inputs) {
      std::vector<OperatorId>& list = readers[input.tensor.at()];
      if (list.empty() || list.back() != OperatorId(k)) list.emplace_back(k);
    }
  }
  return readers;
}

}  // namespace millrace
