// The dataflow graph: tensors and the operators that make one from another.
//
// What it means:
// - Every tensor is written by at most one operator, and operators stand in an order in which each reads only
//   arguments, constants and what stands before it. Any order with that property means the same.
// - An operator runs over all points of its iteration space `space`, a product of dimensions. An access says, for each
//   axis of a tensor, along which index of the space it runs; an axis of extent one may stay at kFixed. An input that
//   does not run along an index is broadcast along it; one that runs along an index with two axes reads the diagonal.
// - `reduced` marks the indices that are reduced over. An elementwise operator has none. A sum's, maximum's or
//   contraction's output does not run along them; a softmax's does: it reduces first and then maps.
// - An elementwise operator's outputs run along all indices, in the order of the space.
// - Dimensions are names for people and for layouts; only extents decide what fits. Two dimensions may have one extent.
// - Numbers are real numbers here. How they are rounded is the storage type's and the executing device's business; no
//   stage may reorder what changes a result beyond rounding. Values may be infinite (a causal mask makes -inf).
// - A scalar or constant is of rank zero, counts no words and has no gradient. Nor has a fixed argument, as a mask is.
// - A dropout's mask is a function of (seed, step, subsequence, row-major logical element index) alone; see
// reference/philox.h.
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

using DimId = Id<Dim>;
using TensorId = Id<struct Tensor>;
using OperatorId = Id<struct Operator>;

enum class TensorRole {
  argument,         // the program's, given by the caller; has a gradient
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
  bool fixed = false;  // an argument whose gradient nobody wants
};

// An axis of extent one that runs along no index.
inline constexpr int kFixed = -1;

struct Access {
  TensorId tensor;
  std::vector<int> axes;  // one a tensor axis: an index of the operator's space, or kFixed
};

enum class Pass { forward, backward };

inline std::string name_of(Pass pass) { return pass == Pass::forward ? "forward" : "backward"; }

struct Operator {
  std::string name;  // unique in its graph
  OperatorKind kind = OperatorKind::copy;
  Pass pass = Pass::forward;
  std::vector<DimId> space;
  std::vector<bool> reduced;  // one an index of the space
  std::vector<Access> inputs;
  std::vector<Access> outputs;
  double value = 0;           // dropout: probability; layernorm, rmsnorm: epsilon; power: exponent
  uint32_t subsequence = 0;   // dropout: which of the program's masks
  std::vector<int> diagonal;  // embed_diagonal: for each index the one that it must equal (itself: free)
};

// A result of the program, under the name that the caller knows.
struct Output {
  std::string name;
  TensorId tensor;
};

struct Graph {
  std::string name;
  std::vector<Dim> dims;
  std::vector<Tensor> tensors;
  std::vector<Operator> operators;
  std::vector<TensorId> arguments;  // in the order of the program's parameters, scalars among them
  std::vector<Output> results;

  const Tensor& tensor(TensorId id) const { return tensors[id.at()]; }
  int64_t extent(DimId id) const { return dims[id.at()].extent; }
};

// Whether the access runs along an index of the operator's space.
bool runs_along(const Access& access, size_t index);

// 0, 1, …: the axes of an access that runs along a space of `count` indices in order.
std::vector<int> in_order(size_t count);

// Elements of a tensor: its words, in the paper's sense. A scalar has one.
int64_t elements_of(const Graph& graph, TensorId tensor);

// The words that reading or writing this tensor moves: none for scalars and constants.
int64_t words_of(const Graph& graph, TensorId tensor);

// Points of an operator's iteration space.
int64_t points_of(const Graph& graph, const Operator& op);

// For each tensor the operator that writes it, or an invalid id.
std::vector<OperatorId> producers_of(const Graph& graph);

// The dropout whose mask a tensor is, or none.
const Operator* dropout_of(const Graph& graph, TensorId mask);

// What a comparison makes.
bool is_computed_boolean(const Graph& graph, TensorId tensor);

// For each tensor the operators that read it, each once, in order.
std::vector<std::vector<OperatorId>> readers_of(const Graph& graph);

}  // namespace millrace
