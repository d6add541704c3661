// Which positions the integers of a tensor may be. Tests: tests/ir/index_limits_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace millrace {

// How many positions the ids of a gather or scatter_add select from; zero for other operators.
int64_t selected_positions(const Graph& graph, const Operator& op);

// For each tensor the smallest extent of the axes that its values select from, directly or after copies; zero if they
// select nothing. Integers that nothing reads have limit one: before the program was simplified, they may have selected
// from any axis.
std::vector<int64_t> index_limits(const Graph& graph);

}  // namespace millrace
