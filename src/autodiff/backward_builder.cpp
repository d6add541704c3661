#include "autodiff/backward_builder.h"

#include "base/text.h"

namespace millrace {

BackwardBuilder::BackwardBuilder(Graph& graph) : graph_(graph) {
  for (const Tensor& tensor : graph.tensors) tensor_names_.claim(tensor.name);
  for (const Operator& op : graph.operators) operator_names_.claim(op.name);
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    if (graph.tensors[k].role == TensorRole::constant) constants_.emplace(graph.tensors[k].value, TensorId(k));
  }
}

TensorId BackwardBuilder::add_tensor(const std::string& name, DType dtype, const std::vector<DimId>& dims) {
  graph_.tensors.push_back({tensor_names_.take(name, "."), dtype, dims, TensorRole::computed, 0});
  return TensorId(graph_.tensors.size() - 1);
}

void BackwardBuilder::rename(TensorId tensor, const std::string& name) {
  Tensor& renamed = graph_.tensors[tensor.at()];
  if (renamed.name != name && tensor_names_.claim(name)) renamed.name = name;
}

Access BackwardBuilder::constant(double value) {
  const auto [entry, fresh] = constants_.try_emplace(value, TensorId(graph_.tensors.size()));
  if (fresh)
    graph_.tensors.push_back({tensor_names_.take(concat(value), "."), DType::float64, {}, TensorRole::constant, value});
  return {entry->second, {}};
}

DimId BackwardBuilder::dim(const std::string& name, int64_t extent) {
  for (size_t k = 0; k < graph_.dims.size(); ++k) {
    if (graph_.dims[k].extent == extent && graph_.dims[k].name == name) return DimId(k);
  }
  graph_.dims.push_back({name, extent});
  return DimId(graph_.dims.size() - 1);
}

DimId BackwardBuilder::dim_like(DimId old, int64_t extent) {
  const Dim& base = graph_.dims[old.at()];
  return base.extent == extent ? old : dim(resized_name(base, extent), extent);
}

DimId BackwardBuilder::unit() {
  for (size_t k = 0; k < graph_.dims.size(); ++k) {
    if (graph_.dims[k].extent == 1) return DimId(k);
  }
  return dim("1", 1);
}

Operator BackwardBuilder::over(OperatorKind kind, const std::vector<DimId>& space) {
  Operator op;
  op.kind = kind;
  op.space = space;
  op.reduced.resize(space.size(), false);
  return op;
}

TensorId BackwardBuilder::emit(Operator op, const std::string& name, const std::string& output, DType dtype,
                               const std::vector<Position>& axes) {
  std::vector<DimId> dims;
  for (const Position& axis : axes) {
    if (axis.terms.empty()) {
      dims.push_back(unit());
    } else if (axis.is_index()) {
      dims.push_back(op.space[as_index(axis.index())]);
    } else {
      int64_t extent = 1;
      std::vector<std::string> names;
      for (const IndexTerm& term : axis.terms) {
        extent *= graph_.extent(op.space[as_index(term.index)]);
        names.push_back(graph_.dims[op.space[as_index(term.index)].at()].name);
      }
      dims.push_back(dim(join(names, "·"), extent));
    }
  }
  return emit(std::move(op), name, output, dtype, dims, axes);
}

TensorId BackwardBuilder::emit(Operator op, const std::string& name, const std::string& output, DType dtype,
                               const std::vector<DimId>& dims, const std::vector<Position>& axes) {
  const TensorId tensor = add_tensor(output, dtype, dims);
  op.outputs.push_back({tensor, axes});
  append(std::move(op), name);
  return tensor;
}

void BackwardBuilder::append(Operator op, const std::string& name) {
  op.name = operator_names_.take(name, " ");
  op.pass = Pass::backward;
  graph_.operators.push_back(std::move(op));
}

}  // namespace millrace
