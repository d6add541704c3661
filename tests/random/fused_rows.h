// Runs fused operators as fused_graph.h says that they run: row by row, where a row has nothing of another one. It
// knows nothing of how fusion decides; what cannot be done inside a row is a complaint or a wrong result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fusion/fused_graph.h"
#include "reference/bounded.h"
#include "reference/interpreter.h"

namespace millrace::random_programs {

struct Memory {
  Values<Bounded<53>> values;   // one a tensor of the graph; empty where not written: interim tensors stay so
  std::vector<bool> reordered;  // one a tensor: a sum across rows is in it, whose order differs from the unfused one
};

// Runs one group, reads and writes memory. Says what is wrong when it cannot.
std::optional<std::string> run_group(const Graph& graph, const FusedOperator& group, const RandomState& random,
                                     Memory& memory);

}  // namespace millrace::random_programs
