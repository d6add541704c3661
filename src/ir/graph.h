// The dataflow graph: tensors, and the operators that compute them. Tests: tests/ir/verify_test.cpp.
//
// Semantics:
// - Every tensor is written by at most one operator. Operators are ordered so that each reads only arguments, constants
//   and outputs of earlier operators. Any such order means the same.
// - An operator runs over all points of its iteration space `space`, a product of dimensions. An access says where on
//   each axis of a tensor a point is: an affine function of the point's indices. Transposition, broadcasting (an input
//   that does not depend on an index), diagonals, slices, flips, windows and split axes are accesses, not operators.
//   Every position is inside the tensor.
// - The positions of an output are all different: each index is on exactly one axis, and the indices of an axis count
//   its positions like the digits of a number (a merged axis). All positions are written.
// - `reduced` marks the reduced indices. An elementwise operator has none. The output of a sum, maximum or contraction
//   does not run along them; the output of a softmax does: it reduces first and then maps.
// - An elementwise operator's outputs run along all indices, in the order of the space.
// - A join, which is a concatenation or padding, takes at each point the input whose region contains the point, or
//   `value` if there is none. Regions are boxes that do not overlap; an input is inside its tensor where it is taken.
// - A gather reads its first input, the table, at the position that its second input, the ids, has at the point: on the
//   axis `gathered`, where the access has position zero. A scatter_add sums the points whose id equals the index
//   `gathered`. Ids outside the axis are clamped to its first or last position.
// - Integers and booleans are exact and have no gradient. Only comparisons, where, copies and ids use them.
// - Dimensions are names for people and for layouts; only extents decide whether shapes match. Two dimensions may have
//   the same extent.
// - Numbers are real numbers. Rounding depends on the storage type and the device; no stage may make a change that
//   alters a result by more than rounding. Values may be infinite (a causal mask makes -inf).
// - A scalar or constant has rank zero, counts no words and has no gradient. A fixed argument, such as a mask, has no
//   gradient either.
// - A dropout's mask depends only on (seed, step, subsequence, row-major logical element index), as in
//   reference/philox.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/id.h"
#include "ir/dtype.h"
#include "ir/operator_kind.h"

namespace millrace {

struct Dim {
  std::string name;
  int64_t extent = 0;
};

// Whether the program names it as a size: it is neither a number nor made from other dimensions.
bool is_size(const Dim& dim);
// The name of a dimension like this one that has another extent, such as a slice of it: Y:62.
std::string resized_name(const Dim& dim, int64_t extent);

using DimId = Id<Dim>;
using TensorId = Id<struct Tensor>;
using OperatorId = Id<struct Operator>;

enum class TensorRole {
  argument,         // given by the caller; has a gradient
  scalar,           // a rank-zero argument, passed by value; has no gradient
  constant,         // a number in the program text
  result_gradient,  // given by the caller for backward
  computed,         // written by an operator
};

struct Tensor {
  std::string name;  // unique in its graph
  DType dtype = DType::float32;
  std::vector<DimId> dims;
  TensorRole role = TensorRole::computed;
  double value = 0;    // of a constant
  bool fixed = false;  // an argument without gradient
};

// An axis of extent one that runs along no index.
inline constexpr int kFixed = -1;

// A multiple of an index.
struct IndexTerm {
  int index = 0;
  int64_t stride = 1;

  auto operator<=>(const IndexTerm&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees one
};

// The position on an axis: Σ stride · index + offset. The terms are sorted by index, each index once, no stride zero.
struct Position {
  std::vector<IndexTerm> terms;
  int64_t offset = 0;

  Position() = default;
  // The index itself, or zero for kFixed.
  Position(int index) {  // NOLINT(google-explicit-constructor): most positions are indices
    if (index != kFixed) terms.push_back({index, 1});
  }
  Position(std::vector<IndexTerm> terms_of_position, int64_t offset_of_position)
      : terms(std::move(terms_of_position)), offset(offset_of_position) {}

  auto operator<=>(const Position&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees one

  // Whether it is an index, or zero. The index may be shorter than the axis: is_plain checks accesses.
  bool is_index() const { return offset == 0 && (terms.empty() || (terms.size() == 1 && terms[0].stride == 1)); }
  // That index, or kFixed.
  int index() const { return terms.empty() ? kFixed : terms[0].index; }
  int64_t stride_along(int index) const;
};

// Each index of the position replaced by a position.
Position substituted(const Position& position, const std::vector<Position>& by);

struct Access {
  TensorId tensor;
  std::vector<Position> axes;  // one per tensor axis

  bool operator==(const Access&) const = default;
};

// From the first to the last.
struct Range {
  int64_t first = 0;
  int64_t last = 0;

  auto operator<=>(const Range&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees one
  int64_t length() const { return last - first + 1; }
};

// A box of points: one range per index.
using Region = std::vector<Range>;

enum class Pass { forward, backward };

inline std::string name_of(Pass pass) { return pass == Pass::forward ? "forward" : "backward"; }

struct Operator {
  std::string name;  // unique in its graph
  OperatorKind kind = OperatorKind::copy;
  Pass pass = Pass::forward;
  std::vector<DimId> space;
  std::vector<bool> reduced;  // one per index of the space
  std::vector<Access> inputs;
  std::vector<Access> outputs;
  double value = 0;             // dropout: probability; layernorm, rmsnorm: epsilon; power: exponent; join: outside
  uint32_t subsequence = 0;     // dropout: the number of its random subsequence
  std::vector<Region> regions;  // join: where it takes each input
  std::vector<int> diagonal;    // embed_diagonal: for each index, the index that it must equal (itself if free)
  int gathered = 0;             // gather: the axis of the table that ids select; scatter_add: the index that they equal
};

// A result of the program, with the name that the caller uses.
struct Output {
  std::string name;
  TensorId tensor;
};

struct Graph {
  std::string name;
  std::vector<Dim> dims;
  std::vector<Tensor> tensors;
  std::vector<Operator> operators;
  std::vector<TensorId> arguments;  // in the order of the program's parameters, including scalars
  std::vector<Output> results;

  const Tensor& tensor(TensorId id) const { return tensors[id.at()]; }
  int64_t extent(DimId id) const { return dims[id.at()].extent; }
};

// Whether each axis runs along all of one index, or has extent one and is fixed: no slice, split axis or window.
bool is_plain(const Graph& graph, const Operator& op, const Access& access);

// Whether all accesses of an operator are plain.
bool has_plain_accesses(const Graph& graph, const Operator& op);

// Whether this input is the table of a gather: its positions depend on data.
bool is_gathered_table(const Operator& op, size_t input);

// Whether the access reads or writes the whole tensor, its axes in the order of the space.
bool is_whole(const Graph& graph, const Operator& op, const Access& access);

// Whether two axes run along one index.
bool takes_diagonal(const Access& access);

// Whether it takes a diagonal of a slice, or of an axis that several indices count. Only backward may read so: autodiff
// transposes diagonals of whole axes only.
bool takes_partial_diagonal(const Graph& graph, const Operator& op, const Access& access);

// The index of each axis of a plain access, or kFixed.
std::vector<int> indices_of(const Access& access);

// Whether the position on an axis depends on the index.
bool runs_along(const Access& access, size_t index);

// 0, 1, …: the axes of an access that runs along a space of `count` indices in order.
std::vector<Position> in_order(size_t count);

// Number of elements of a tensor: its words, in the paper's terms. A scalar has one.
int64_t elements_of(const Graph& graph, TensorId tensor);

// The words that reading or writing this tensor moves: none for scalars and constants.
int64_t words_of(const Graph& graph, TensorId tensor);

// The smallest and the largest position of an access on an axis, anywhere and in a region.
Range range_of(const Graph& graph, const Operator& op, const Position& position);

Range range_of(const Position& position, const Region& region);

// All points of an operator.
Region all_points(const Graph& graph, const Operator& op);
// The points where an operator reads its input: for a join, its region.
Region points_of_input(const Graph& graph, const Operator& op, size_t input);
bool overlap(const Region& one, const Region& other);

// The words of the tensor that the access touches; none for scalars and constants. Of a gather's table: one per point,
// but at most all.
int64_t words_touched(const Graph& graph, const Operator& op, const Access& access);
int64_t words_touched(const Graph& graph, const Region& region, const Access& access);

// An access and the operator that makes it.
struct TensorUse {
  const Operator* op;
  size_t input;

  const Access& access() const { return op->inputs[input]; }
};

// The words of one tensor that these accesses touch together: each different access counts once, and the sum is at most
// all of its words.
int64_t words_touched(const Graph& graph, const std::vector<TensorUse>& uses);

// Number of points of an operator's iteration space.
int64_t points_of(const Graph& graph, const Operator& op);

// Floating-point operations. A scatter_add adds each element that it reads once.
int64_t flop_of(const Graph& graph, const Operator& op);

// For each tensor the operator that writes it, or an invalid id.
std::vector<OperatorId> producers_of(const Graph& graph);

// The dropout that writes this mask; nullptr if the tensor is not a mask.
const Operator* dropout_of(const Graph& graph, TensorId mask);

// Whether an operator (a comparison) writes this boolean.
bool is_computed_boolean(const Graph& graph, TensorId tensor);

// For each tensor the operators that read it, each once, in order.
std::vector<std::vector<OperatorId>> readers_of(const Graph& graph);

}  // namespace millrace
