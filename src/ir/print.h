// A graph as text, one line an operator: what tests compare and `millrace analyze --graph` shows.
#pragma once

#include <string>

#include "ir/graph.h"

namespace millrace {

// The indices of an operator's space as they are printed: dimension names, primed where one stands twice.
std::vector<std::string> index_names(const Graph& graph, const Operator& op);

std::string print(const Graph& graph, const Operator& op);
std::string print(const Graph& graph);

}  // namespace millrace
