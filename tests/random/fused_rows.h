// Runs fused operators as fused_graph.h says that they run: row by row, where a row has nothing of another one. It
// knows nothing of how fusion decides; what cannot be done inside a row is a complaint or a wrong result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fusion/fused_graph.h"
#include "reference/interpreter.h"

namespace millrace::random_programs {

template <class Scalar>
struct Memory {
  Values<Scalar> values;        // one a tensor of the graph; empty where not written: interim tensors stay so
  std::vector<bool> reordered;  // one a tensor: a sum across rows is in it, whose order differs from the unfused one
};

// Runs one group, reads and writes memory. Says what is wrong when it cannot. Scalar is double or Bounded<53>.
template <class Scalar>
std::optional<std::string> run_group(const Graph& graph, const FusedOperator& group, const RandomState& random,
                                     Memory<Scalar>& memory);

}  // namespace millrace::random_programs
