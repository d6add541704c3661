// The usual name of an operator: `bias` and `residual` for additions, `einsum` for contractions, else its kind.
// Tests: tests/fusion/paper_test.cpp.
#pragma once

#include <string_view>

#include "ir/graph.h"

namespace millrace {

std::string_view label_of(const Graph& graph, const Operator& op);

}  // namespace millrace
