// Lowers np.einsum to operators: diagonals, sums over indices of one operand, then pairwise products.
// Tests: tests/frontend/einsum_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "frontend/builder.h"
#include "frontend/sizes.h"

namespace millrace {

// `subscripts` are NumPy's. A result axis with letter k gets the name of the module's size K if the extents match.
Value lower_einsum(const std::string& subscripts, const std::vector<View>& operands, const Numbers& numbers,
                   SourceLocation location, Builder& builder, Diagnostics& diagnostics);

}  // namespace millrace
