// The oracle: runs a graph as operators.inc defines it, with nested loops, in the order of its operators. It shares no
// code with autodiff or code generation; every other implementation is compared with it.
// Tests: tests/reference/interpreter_test.cpp
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "millrace/result.h"

namespace millrace {

// A dropout's mask depends on this, its subsequence and the element; see philox.h.
struct RandomState {
  uint64_t seed = 0;
  uint32_t step = 0;
};

// The elements of each tensor, row-major in the order of its dims; empty if not computed (yet). A boolean is 0 or 1.
template <class Scalar>
using Values = std::vector<std::vector<Scalar>>;

// An error if the graph's tensors exceed the memory limit of the interpreter.
Result<Done> check_memory(const Graph& graph);

// Estimates the time of interpret<double> from the points of the operators; Bounded takes four times as long.
double reference_seconds(const Graph& graph);

// Computes the constants and all tensors that operators write, forward and backward. Arguments, scalars and result
// gradients must be set. The graph must be valid. Scalar is double, Bounded<53> or Bounded<24> (bounds rounding errors
// in float64 or float32), or Dual<Bounded<53>> (derivatives along one direction, also bounded).
template <class Scalar>
Result<Done> interpret(const Graph& graph, Values<Scalar>& values, const RandomState& random);

// The same, with every tensor that an operator writes rounded to its storage type: the result without fusion.
Result<Done> interpret_rounded(const Graph& graph, Values<double>& values, const RandomState& random);

// Rounds to the nearest value of a storage type.
double rounded_to(DType dtype, double value);

}  // namespace millrace
