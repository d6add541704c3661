// What a fused operator is called: after its members, and after the paper's kernels that are in it.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace millrace {

// bias-dropout-residual-layernorm; bias*3
std::string derived_name(const Graph& graph, const std::vector<OperatorId>& members);

// BDRLN; EBSB+BLNRD where a group holds several (paper, section A.2); empty where it holds none.
std::string paper_name(const Graph& graph, const std::vector<OperatorId>& members);

}  // namespace millrace
