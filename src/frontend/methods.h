// Tells methods from functions of a module: `x.sum()` is a method when x is a local of the function, `np.sum(x)` is
// not. Tests: tests/frontend/syntax_test.cpp.
#pragma once

#include "frontend/syntax.h"

namespace millrace {

// Rewrites dotted names and calls whose first part is a local, as Python decides: a parameter, or assigned anywhere in
// the function. x.shape becomes an attribute of x, x.sum(a) a call of sum with the arguments x and a.
void resolve_methods(Function& function);

}  // namespace millrace
