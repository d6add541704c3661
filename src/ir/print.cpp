#include "ir/print.h"

#include <algorithm>

#include "base/text.h"

namespace millrace {
namespace {

// `1` for a fixed axis of extent one, else a sum: `2·i + k + 3`.
std::string print_position(const Position& position, int64_t extent, const std::vector<std::string>& names) {
  if (position.terms.empty()) return extent == 1 && position.offset == 0 ? "1" : concat("at ", position.offset);
  std::string text;
  for (const IndexTerm& term : position.terms) {
    const int64_t size = term.stride < 0 ? -term.stride : term.stride;
    text += text.empty() ? (term.stride < 0 ? "-" : "") : (term.stride < 0 ? " - " : " + ");
    text += concat(size == 1 ? "" : concat(size, "·"), names[as_index(term.index)]);
  }
  if (position.offset != 0)
    text += concat(position.offset < 0 ? " - " : " + ", position.offset < 0 ? -position.offset : position.offset);
  return text;
}

std::string print_access(const Graph& graph, const Access& access, const std::vector<std::string>& names) {
  const Tensor& tensor = graph.tensor(access.tensor);
  if (tensor.dims.empty()) return tensor.name;
  std::vector<std::string> parts;
  for (size_t axis = 0; axis < access.axes.size(); ++axis)
    parts.push_back(print_position(access.axes[axis], graph.extent(tensor.dims[axis]), names));
  return concat(tensor.name, "[", join(parts, ", "), "]");
}

std::string print_accesses(const Graph& graph, const std::vector<Access>& accesses,
                           const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  for (const Access& access : accesses) parts.push_back(print_access(graph, access, names));
  return join(parts, ", ");
}

// The inputs of a join, each with the ranges of its region that are not whole: `x[i] for i in 0..2`.
std::string print_joined(const Graph& graph, const Operator& op, const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  for (size_t k = 0; k < op.inputs.size(); ++k) {
    std::vector<std::string> ranges;
    for (size_t index = 0; index < op.space.size(); ++index) {
      const Range& range = op.regions[k][index];
      if (range.length() != graph.extent(op.space[index]))
        ranges.push_back(concat(names[index], " in ", range.first, "..", range.last));
    }
    parts.push_back(
        concat(print_access(graph, op.inputs[k], names), ranges.empty() ? "" : concat(" for ", join(ranges, " and "))));
  }
  return join(parts, ", ");
}

std::string print_attributes(const Operator& op) {
  switch (op.kind) {
    case OperatorKind::dropout: return concat(" p=", op.value, " subsequence=", op.subsequence);
    case OperatorKind::layernorm:
    case OperatorKind::rmsnorm: return concat(" eps=", op.value);
    case OperatorKind::power:
    case OperatorKind::power_dx: return concat(" exponent=", op.value);
    case OperatorKind::join: return concat(" outside=", op.value);
    case OperatorKind::gather: return concat(" axis=", op.gathered);
    case OperatorKind::embed_diagonal: return concat(" diagonal=", join(op.diagonal, ","));
    default: return "";
  }
}

std::string print_declaration(const Graph& graph, const Tensor& tensor) {
  std::vector<std::string> dims;
  for (const DimId dim : tensor.dims) {
    const Dim& d = graph.dims[dim.at()];
    dims.push_back(d.name == concat(d.extent) ? d.name : concat(d.name, "=", d.extent));
  }
  return concat(tensor.name, ": ", name_of(tensor.dtype), dims.empty() ? "" : concat("[", join(dims, ", "), "]"));
}

}  // namespace

std::vector<std::string> index_names(const Graph& graph, const Operator& op) {
  std::vector<std::string> names;
  for (const DimId dim : op.space) {
    std::string name = graph.dims[dim.at()].name;
    while (std::find(names.begin(), names.end(), name) != names.end()) name += "'";
    names.push_back(std::move(name));
  }
  return names;
}

std::string print(const Graph& graph, const Operator& op) {
  const std::vector<std::string> names = index_names(graph, op);
  std::vector<std::string> reduced;
  for (size_t index = 0; index < names.size(); ++index) {
    if (op.reduced[index]) reduced.push_back(names[index]);
  }
  return concat(
      print_accesses(graph, op.outputs, names), " = ", info_of(op.kind).name, "(",
      op.kind == OperatorKind::join ? print_joined(graph, op, names) : print_accesses(graph, op.inputs, names), ")",
      reduced.empty() ? "" : concat(" over ", join(reduced, ", ")), print_attributes(op),
      op.kind == OperatorKind::scatter_add ? concat(" at ", names[as_index(op.gathered)]) : "");
}

std::string print(const Graph& graph) {
  std::string text = concat("program ", graph.name, "\n");
  for (const TensorId id : graph.arguments) {
    const Tensor& tensor = graph.tensor(id);
    text += concat(tensor.role == TensorRole::scalar ? "scalar " : "argument ", print_declaration(graph, tensor),
                   tensor.fixed ? " fixed" : "", "\n");
  }
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    bool first = true;
    for (const Operator& op : graph.operators) {
      if (op.pass != pass) continue;
      if (first) text += pass == Pass::forward ? "forward\n" : "backward\n";
      first = false;
      text += concat("  ", print(graph, op), "\n");
    }
  }
  for (const Output& result : graph.results) {
    const std::string& tensor = graph.tensor(result.tensor).name;
    text += concat("result ", result.name, tensor == result.name ? "" : concat(" = ", tensor), "\n");
  }
  return text;
}

}  // namespace millrace
