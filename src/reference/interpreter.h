// The oracle: runs a graph as operators.inc defines it, by nested loops, in the order of its operators. It shares no
// code with autodiff or any lowering; whatever else computes a graph is compared with it. Tests:
// tests/reference/interpreter_test.cpp
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "millrace/result.h"

namespace millrace {

// What a dropout's mask depends on beside its subsequence and element; see philox.h.
struct RandomState {
  uint64_t seed = 0;
  uint32_t step = 0;
};

// One a tensor, row-major in the order of its dims; empty where not there (yet). A boolean is 0 or 1.
template <class Scalar>
using Values = std::vector<std::vector<Scalar>>;

// Refuses a graph whose tensors would not fit into the memory that the interpreter allows itself.
Result<Done> check_memory(const Graph& graph);

// About how long interpret<double> takes for it, by the points of its operators; Bounded takes four times as long.
double reference_seconds(const Graph& graph);

// Fills the constants and all that operators write, forward and backward. Arguments, scalars and result gradients must
// be there. The graph must be valid. Scalar is double, Bounded<53> or Bounded<24> (bounds rounding errors in float64 or
// float32), or Dual<Bounded<53>> (derivatives along one direction, bounded too).
template <class Scalar>
Result<Done> interpret(const Graph& graph, Values<Scalar>& values, const RandomState& random);

// The same, with every tensor that an operator writes rounded to its storage type: what the program computes when no
// operators are fused.
Result<Done> interpret_rounded(const Graph& graph, Values<double>& values, const RandomState& random);

// The nearest number of a storage type.
double rounded_to(DType dtype, double value);

}  // namespace millrace
