// Contractions as products: of one operator, or of several that are stacked.
// Test: tests/candidates/gemm_configs_test.cpp
#pragma once

#include <vector>

#include "base/or_rejected.h"
#include "candidates/candidates.h"
#include "fusion/fused_graph.h"

namespace millrace {

// Whether extents, axis by axis, and types are equal.
bool same_shape(const Graph& graph, TensorId one, TensorId other);

Product product_of(const Graph& graph, const Operator& contraction);

// One product for contractions that share an operand (the others and the results are stacked), or whose results are
// summed (both operands are stacked, and the stack is contracted). Rejected if shapes or axes differ.
OrRejected<Product> stacked_product(const Graph& graph, const std::vector<OperatorId>& contractions,
                                    Stacking::Kind kind);

}  // namespace millrace
