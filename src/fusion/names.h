// Names of fused operators: from their members, and from the paper's kernels that they contain.
// Tests: tests/fusion/paper_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace millrace {

// bias-dropout-residual-layernorm; bias*3
std::string derived_name(const Graph& graph, const std::vector<OperatorId>& members);

// BDRLN; EBSB+BLNRD if a group contains several (paper, section A.2); empty if it contains none.
std::string paper_name(const Graph& graph, const std::vector<OperatorId>& members);

}  // namespace millrace
