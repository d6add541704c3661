// np.einsum to operators: diagonals, sums of private indices, then pairwise products. Tests:
// tests/frontend/einsum_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "frontend/builder.h"
#include "frontend/sizes.h"

namespace millrace {

// `subscripts` as NumPy reads them. Result axes are named after module sizes of the letters' names where those fit.
Value lower_einsum(const std::string& subscripts, const std::vector<View>& operands, const Numbers& numbers,
                   SourceLocation location, Builder& builder, Diagnostics& diagnostics);

}  // namespace millrace
