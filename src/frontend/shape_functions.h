// NumPy's functions that change a tensor's shape or move its elements: views where one can express it, joins otherwise.
// Tests: tests/frontend/views_test.cpp, tests/error/shape_functions.py.
#pragma once

#include <string>
#include <vector>

#include "frontend/builder.h"
#include "frontend/syntax.h"
#include "frontend/value.h"

namespace millrace {

bool is_shape_function(const std::string& name);

std::vector<std::string> shape_functions();

// Lowers the call; `arguments` are its children's values, in order. Lists and tuples are tuple values.
Value call_shape_function(const Expression& call, const std::vector<Value>& arguments, Builder& builder,
                          Diagnostics& diagnostics);

}  // namespace millrace
