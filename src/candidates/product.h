// Contractions as products: of one operator, or of several that are stacked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "candidates/candidates.h"

namespace millrace {

// Equal extents, axis by axis, and one type.
bool same_shape(const Graph& graph, TensorId one, TensorId other);

Product product_of(const Graph& graph, const Operator& contraction);

// One product for contractions that share an operand (`summed` false: the others and the results are stacked), or whose
// results are summed (both operands are stacked, and the stack is contracted). Nothing, and a reason, where shapes or
// axes differ.
std::optional<Product> stacked_product(const Graph& graph, const std::vector<OperatorId>& contractions, bool summed,
                                       std::string& reason);

}  // namespace millrace
