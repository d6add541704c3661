// The inputs of a random program, drawn from a seed: the same on every platform.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "reference/interpreter.h"

namespace millrace::random_programs {

// Arguments may be moved along the direction by 2^-kFinestStep and larger powers of two without any rounding.
inline constexpr int kFinestStep = 23;

struct Inputs {
  std::vector<std::vector<double>> arguments;         // one per argument of the graph
  std::vector<std::vector<double>> direction;         // one per argument; zeros for one without gradient
  std::vector<std::vector<double>> result_gradients;  // one per result
  RandomState random;                                 // of the dropouts
};

Inputs draw_inputs(const Graph& graph, uint64_t seed);

// The arguments, moved by `step` along the direction, as values for the interpreter.
Values<double> values_at(const Graph& graph, const Inputs& inputs, double step);

}  // namespace millrace::random_programs
