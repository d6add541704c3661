#include "ir/label.h"

#include <algorithm>

namespace millrace {
namespace {

std::string_view label_of_addition(const Graph& graph, const Operator& op) {
  const int64_t a = words_of(graph, op.inputs[0].tensor);
  const int64_t b = words_of(graph, op.inputs[1].tensor);
  const int64_t y = elements_of(graph, op.outputs[0].tensor);
  if (a == y && b == y) return "residual";
  return std::max(a, b) == y && std::min(a, b) > 0 ? "bias" : "add";
}

std::string_view label_of_copy(const Operator& op) {
  std::vector<int> indices;
  for (const Position& axis : op.inputs[0].axes) {
    if (!axis.is_index()) return "copy";
    if (axis.index() != kFixed) indices.push_back(axis.index());
  }
  const bool ordered = std::is_sorted(indices.begin(), indices.end());
  std::sort(indices.begin(), indices.end());
  if (std::adjacent_find(indices.begin(), indices.end()) != indices.end()) return "diagonal";
  if (indices.size() < op.space.size()) return "broadcast";
  return ordered ? "copy" : "transpose";
}

}  // namespace

std::string_view label_of(const Graph& graph, const Operator& op) {
  switch (op.kind) {
    case OperatorKind::add: return label_of_addition(graph, op);
    case OperatorKind::copy: return label_of_copy(op);
    case OperatorKind::join: return op.inputs.size() == 1 ? "pad" : "concatenate";
    case OperatorKind::contraction: return "einsum";
    case OperatorKind::index: return "arange";
    default: return info_of(op.kind).name;
  }
}

}  // namespace millrace
