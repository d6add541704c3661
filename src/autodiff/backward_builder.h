// Adds backward operators and their tensors to a training graph. Tests: tests/autodiff/differentiate_test.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/unique_names.h"
#include "ir/graph.h"

namespace millrace {

class BackwardBuilder {
 public:
  explicit BackwardBuilder(Graph& graph);

  Graph& graph() { return graph_; }

  TensorId add_tensor(const std::string& name, DType dtype, const std::vector<DimId>& dims);
  // Renames a tensor if the name is free.
  void rename(TensorId tensor, const std::string& name);
  Access constant(double value);
  // A dimension of this extent: an existing one of this name, or a new one.
  DimId dim(const std::string& name, int64_t extent);
  // The dimension itself if it has this extent; otherwise a dimension named after it.
  DimId dim_like(DimId old, int64_t extent);
  // The first dimension of extent one.
  DimId unit();

  static Operator over(OperatorKind kind, const std::vector<DimId>& space);

  // Adds an operator with one output; its tensor has one axis per position. The axis of a plain position has the
  // dimension of its index. Without terms, an axis has extent one. Any other has the merged extent of its indices.
  TensorId emit(Operator op, const std::string& name, const std::string& output, DType dtype,
                const std::vector<Position>& axes);
  // The same with given dimensions.
  TensorId emit(Operator op, const std::string& name, const std::string& output, DType dtype,
                const std::vector<DimId>& dims, const std::vector<Position>& axes);
  void append(Operator op, const std::string& name);

 private:
  Graph& graph_;
  UniqueNames tensor_names_;
  UniqueNames operator_names_;
  std::map<double, TensorId> constants_;
};

}  // namespace millrace
