// Adds operators to a graph by NumPy's shape rules. After an error it returns a broken value, so that lowering can
// continue. Tests: tests/frontend/broadcast_test.cpp, lower_test.cpp.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/unique_names.h"
#include "frontend/diagnostics.h"
#include "frontend/value.h"
#include "ir/graph.h"

namespace millrace {

inline constexpr size_t kMaxRank = 32;     // NumPy's
inline constexpr size_t kMaxTarget = 300;  // characters

class Builder {
 public:
  explicit Builder(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

  // Prefix of the names of all tensors and operators made from now on; truncated to its last kMaxTarget characters.
  void set_target(std::string target) {
    target_ = std::move(target);
    if (target_.size() > kMaxTarget) target_.erase(0, target_.size() - kMaxTarget);
  }
  const std::string& target() const { return target_; }

  TensorId add_argument(const std::string& name, DType dtype, const std::vector<DimId>& dims, TensorRole role);
  DimId dim(const std::string& name, int64_t extent);
  Value constant(double number);

  // A view of all axes of the tensor, in order.
  View whole(TensorId tensor) const;
  int64_t extent(const View& view, size_t axis) const;
  DimId dim_of(const View& view, size_t axis);
  std::string shape(const View& view) const;

  // y[…] = kind(inputs[…]) with broadcasting. Numbers among the inputs become constants.
  Value map(OperatorKind kind, const std::vector<Value>& inputs, SourceLocation location, double value = 0);

  // A dropout; each call has its own random subsequence.
  Value dropout(const Value& input, double probability, SourceLocation location);

  // A sum, maximum or minimum over the marked axes.
  Value reduce(OperatorKind kind, const View& view, const std::vector<bool>& reduced, bool keep_dims,
               SourceLocation location);

  // A normalization along the marked axes. `weights` have exactly these axes, or are constants.
  Value normalize(OperatorKind kind, const View& view, const std::vector<bool>& axes, const std::vector<View>& weights,
                  double epsilon, SourceLocation location);

  // Reports a weight that does not have exactly the marked axes of the view.
  bool check_weight(const View& weight, const View& view, const std::vector<bool>& axes, SourceLocation location);

  // A view whose axes are the marked ones of as many axes as `axes` has; the others have extent one.
  View spread(const View& view, const std::vector<bool>& axes) const;

  // Tensors that are made, not computed from arguments: 0, 1, 2, … along a dimension, and a number everywhere.
  Value positions(DimId dim, SourceLocation location);
  Value filled(double number, const std::vector<DimId>& dims, std::optional<DType> dtype, SourceLocation location);

  // A dimension of this extent: one that the program has already, if possible.
  DimId dim_of_extent(int64_t extent);

  // An operand of an einsum, with the label (a number for each letter) of each of its axes.
  struct Term {
    View view;
    std::vector<int> labels;  // one per axis of the view; kFixed for an axis that is broadcast
  };

  // Σ a · b over the labels of a and b that are not in `out`; an elementwise product when there are none.
  Value product(const Term& a, const Term& b, const std::vector<int>& out, const std::map<int, DimId>& dims,
                SourceLocation location);

  // Copies the view into a new tensor with one axis for each label of `out`: a transpose, diagonal or plain copy.
  Value copy(const Term& term, const std::vector<int>& out, const std::map<int, DimId>& dims, SourceLocation location);

  // Names the value's tensor after the statement, if the statement made it.
  void name_result(const Value& value, size_t first_tensor);

  void add_result(const std::string& name, const View& view, SourceLocation location);

  Graph graph;

 private:
  TensorId add_tensor(DType dtype, const std::vector<DimId>& dims, const char* suffix = ".1");
  std::optional<OperatorId> add_operator(Operator op, SourceLocation location);
  DType common_dtype(const std::vector<View>& views) const;
  DType dtype_of_numbers() const;
  // The tensor with another type, since a library multiplies matrices of one type.
  std::optional<TensorId> converted(TensorId tensor, DType dtype, SourceLocation location);
  bool check_boolean(OperatorKind kind, size_t input, const View& view, SourceLocation location);
  Access access(const Term& term, const std::map<int, int>& index_of) const;

  Diagnostics& diagnostics_;
  std::string target_;
  uint32_t dropouts_ = 0;  // so far; the next one's subsequence
  bool full_ = false;
  UniqueNames tensor_names_;
  UniqueNames operator_names_;
  UniqueNames result_names_;
  std::set<TensorId> results_;
  std::map<TensorId, DType> compared_;  // for each boolean: the type of what it compares
  std::set<TensorId> made_of_numbers_;  // tensors that depend on no argument but scalars; they decide no type
  std::map<std::pair<std::string, int64_t>, DimId> dims_;
  std::map<double, TensorId> constants_;
};

}  // namespace millrace
