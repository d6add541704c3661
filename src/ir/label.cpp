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
  const std::vector<int>& axes = op.inputs[0].axes;
  std::vector<int> indices;
  std::copy_if(axes.begin(), axes.end(), std::back_inserter(indices), [](int index) { return index != kFixed; });
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
    case OperatorKind::contraction: return "einsum";
    case OperatorKind::index: return "arange";
    default: return info_of(op.kind).name;
  }
}

}  // namespace millrace
