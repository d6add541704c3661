// A graph as text, one line per operator: tests compare it, and `millrace analyze --graph` prints it.
// Tests: tests/golden/golden_test.cpp.
#pragma once

#include <string>

#include "ir/graph.h"

namespace millrace {

// The printed names of an operator's indices: dimension names, primed if one occurs twice.
std::vector<std::string> index_names(const Graph& graph, const Operator& op);

std::string print(const Graph& graph, const Operator& op);
std::string print(const Graph& graph);

}  // namespace millrace
