// Which module a called function belongs to: NumPy or millrace.numpy, Python's math, or one that Millrace does not
// know. Tests: tests/frontend/imports_test.cpp, tests/error/imports.py, tests/error/not_covered_modules.py.
#pragma once

#include <string>
#include <string_view>

#include "frontend/syntax.h"

namespace millrace {

// Replaces imported names by what they stand for: after `import torch.nn.functional as F` and `from math import sqrt as
// root`, F.relu is torch.nn.functional.relu and root(2) is math.sqrt(2). NumPy is always np.
void resolve_imports(Module& module);

// Whether the prefix of a call names a module whose functions are not NumPy's: torch of torch.exp.
bool is_foreign_module(std::string_view prefix);

// Whether a call with a prefix of NumPy means a different function from NumPy's function of that name, as np.random.exp
// and np.add.reduce do.
bool is_in_submodule(const Expression& call);

}  // namespace millrace
