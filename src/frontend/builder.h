// Adds operators to a graph by NumPy's shape rules. After an error it returns a broken value, so that lowering can
// continue. Tests: tests/frontend/broadcast_test.cpp, lower_test.cpp, views_test.cpp.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/unique_names.h"
#include "frontend/diagnostics.h"
#include "frontend/value.h"
#include "frontend/view_parts.h"
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

  // Names the dimensions of new parts of a view: a part whose extent the program's text contains, a slice or an
  // extension of a dimension, and a digit of a split one. Sizes of the module give their names, if only one has that
  // extent.
  void add_size(const std::string& name, int64_t extent) { sizes_[extent].push_back(name); }
  std::optional<DimId> size_dim(int64_t extent, const View& view);
  DimId dim_like(DimId old, int64_t extent, const View& view);
  DimId digit_dim(DimId whole, int64_t extent, size_t digit);

  // A copy in which each marked axis is one axis of the tensor. Broadcast parts of other axes stay broadcast. Nothing
  // after an error.
  std::optional<View> materialized(const View& view, const std::vector<bool>& axes, SourceLocation location);

  // y[…] = kind(given[…]) with broadcasting. Numbers among them become constants.
  Value map(OperatorKind kind, const std::vector<Value>& given, SourceLocation location, double value = 0);

  // The value with elements of another type: a copy, or the value itself if it has that type. Conditions become ones
  // and zeros.
  Value cast(const Value& value, DType dtype, SourceLocation location);

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

  // A view with as many axes as `axes` has entries: the marked ones are the axes of `view`, and the others have extent
  // one.
  View spread(const View& view, const std::vector<bool>& axes) const;

  // Tensors that do not depend on arguments: 0, 1, 2, … along a dimension, and one number everywhere.
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

  // An input of a join: along each axis the position of its first element.
  struct Placed {
    View view;
    std::vector<int64_t> at;
  };

  // How the positions of an axis of a join become indices, outermost first: the last are digits that all inputs have in
  // common, the first counts the rest.
  struct JoinedAxis {
    SplitPoints points;
    std::vector<int> indices;
  };

  // A tensor of these extents that contains the inputs, which do not overlap; `outside` where there is none.
  Value join(std::vector<Placed> inputs, const std::vector<int64_t>& extents, double outside, SourceLocation location);

  // y[…] = table[…] with the position on an axis of the table given by ids. Each axis of the two, except the gathered
  // one, has the number of an axis of the result, or kFixed if it is broadcast; `dims` are those of the result.
  struct Gather {
    View table;
    size_t axis = 0;
    std::vector<int> table_axes;
    View ids;
    std::vector<int> id_axes;
    std::vector<DimId> dims;
  };
  Value gather(Gather gather, SourceLocation location);

  // x[ids] along an axis: the axes of ids replace it.
  Value gather_along(const View& table, size_t axis, const View& ids, SourceLocation location);

  // Whether all values are integers: an integer tensor, or one made of np.arange and integers.
  bool holds_integers(const View& view) const;

  // Names the value's tensor after the statement, if the statement made it.
  void name_result(const Value& value, size_t first_tensor);

  void add_result(const std::string& name, const View& view, SourceLocation location);

  // Call it when all operators and results exist. A product with a number that its type does not hold is an error,
  // unless it is only added to what a softmax reads. Then a smaller number hides elements as well, and the author is
  // warned.
  void judge_large_factors();

  Graph graph;

 private:
  TensorId add_tensor(DType dtype, const std::vector<DimId>& dims, const char* suffix = ".1");
  std::optional<OperatorId> add_operator(Operator op, SourceLocation location);
  DType common_dtype(const std::vector<View>& views) const;
  // The type of np.where: of what it chooses among, if these are integers, and else that of all inputs.
  DType dtype_of_choice(const std::vector<View>& views) const;
  // The type of the arguments, for numbers that are chosen by integers and booleans.
  DType dtype_of_arguments() const;
  // The inputs of kind(inputs) with numbers that the result's type holds: those that are only chosen become its largest
  // number, factors half of it, and others beyond it are an error. Nothing after an error.
  std::optional<std::vector<Value>> with_held_numbers(OperatorKind kind, const std::vector<Value>& inputs,
                                                      SourceLocation location);
  void report_large_number(double number, DType dtype, SourceLocation location);
  bool is_only_added_to_scores(TensorId product, const std::vector<std::vector<OperatorId>>& readers) const;
  bool check_floating(const View& view, SourceLocation location);
  // Whether two conditions differ, or agree.
  Value compare_conditions(OperatorKind kind, const std::vector<Value>& given, SourceLocation location);
  bool is_condition(const Value& value) const;
  // Whether its inputs are booleans, and its output too.
  static bool is_logical(OperatorKind kind);
  // Whether its inputs may be integers.
  static bool takes_integers(OperatorKind kind);
  // Remembers outputs that hold integers in floating point.
  void note_integers(const Operator& op);
  // The table with the gathered axis as one axis of its tensor; nothing after an error.
  std::optional<View> gatherable(const Gather& gather, SourceLocation location);

  // The indices that the labels of some operands become: several for a label if an operand's axis is merged.
  struct Space {
    std::vector<DimId> dims;
    std::map<int, SplitPoints> points;        // of each label
    std::map<int, std::vector<int>> indices;  // of each label that was added, outermost first
  };
  // Copies operands whose merged axes have no common digits.
  std::optional<Space> common_space(std::vector<Term>& terms, SourceLocation location);
  void add_label(Space& space, int label, DimId dim, const std::vector<Term>& terms);
  Access access(const Term& term, const Space& space) const;
  std::optional<size_t> broadcast_term(const std::vector<Term>& terms, const Space& space, const Operator& op) const;
  bool merge_last_two(View& view, SourceLocation location);
  // The view of a new tensor, of which consecutive axes are merged.
  View grouped(TensorId tensor, const std::vector<size_t>& counts) const;
  // Adds a copy; each group of parts becomes one axis of a new tensor.
  std::optional<TensorId> add_copy(const View& view, const std::vector<std::vector<int>>& groups,
                                   const std::vector<DimId>& dims, SourceLocation location);
  std::optional<DimId> part_at(const std::vector<Term>& terms, int label, int64_t unit, int64_t extent) const;
  bool separate(std::vector<Placed>& inputs, const std::vector<int64_t>& extents, SourceLocation location);
  DType dtype_of_numbers() const;
  // The tensor with another type, since a library multiplies matrices of one type.
  std::optional<TensorId> converted(TensorId tensor, DType dtype, SourceLocation location);
  bool check_boolean(OperatorKind kind, size_t input, const View& view, SourceLocation location);

  // A factor that was replaced, and the product.
  struct LargeFactor {
    double number = 0;
    SourceLocation location;
    TensorId product;
  };

  Diagnostics& diagnostics_;
  std::vector<LargeFactor> large_factors_;
  std::string target_;
  uint32_t dropouts_ = 0;  // so far; the next one's subsequence
  bool full_ = false;
  UniqueNames tensor_names_;
  UniqueNames operator_names_;
  UniqueNames result_names_;
  std::set<TensorId> results_;
  std::map<TensorId, DType> compared_;  // for each boolean: the type of what it compares
  std::set<TensorId> made_of_numbers_;  // tensors that depend on no argument but scalars; they decide no type
  std::set<TensorId> whole_numbers_;    // floating-point tensors that hold integers
  std::map<std::pair<std::string, int64_t>, DimId> dims_;
  std::map<double, TensorId> constants_;
  std::map<std::string, View> copies_;                 // made so far, by the view that was copied
  std::map<int64_t, std::vector<std::string>> sizes_;  // the module's, by extent
};

}  // namespace millrace
