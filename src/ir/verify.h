// What a graph must satisfy, as an executable specification of graph.h. A failure is our bug, not the user's.
#pragma once

#include "ir/graph.h"
#include "millrace/result.h"

namespace millrace {

Result<Done> verify(const Graph& graph);

}  // namespace millrace
