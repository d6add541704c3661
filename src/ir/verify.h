// Checks that a graph is valid: the executable specification of graph.h. A failure is our bug, not the user's.
// Tests: tests/ir/verify_test.cpp.
#pragma once

#include "ir/graph.h"
#include "millrace/result.h"

namespace millrace {

Result<Done> verify(const Graph& graph);

}  // namespace millrace
