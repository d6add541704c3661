// Runs fused operators as fused_graph.h specifies: row by row, where a row sees nothing of another row. It does not
// know how fusion decides; what cannot be computed inside a row gives an error or a wrong result.
// Tests: tests/random/fused_rows_test.cpp, tests/fusion/fused_check_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fusion/fused_graph.h"
#include "reference/interpreter.h"

namespace millrace::random_programs {

template <class Scalar>
struct Memory {
  Values<Scalar> values;  // one per tensor of the graph; empty if not written, as interim tensors are
  std::vector<bool>
      reordered;  // one per tensor: it depends on a sum across rows, whose order differs from the unfused run
};

// Runs one group, reads and writes memory. Returns an error if it cannot. Scalar is double or Bounded<53>.
template <class Scalar>
std::optional<std::string> run_group(const Graph& graph, const FusedOperator& group, const RandomState& random,
                                     Memory<Scalar>& memory);

}  // namespace millrace::random_programs
