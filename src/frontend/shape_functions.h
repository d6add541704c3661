// NumPy's functions that move elements and compute nothing: reshape, transpose, concatenate, pad and their like.
// Tests: tests/frontend/lower_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "frontend/builder.h"
#include "frontend/syntax.h"
#include "frontend/value.h"

namespace millrace {

bool is_shape_function(const std::string& name);

std::vector<std::string> shape_functions();

// Lowers the call; `arguments` are its children's values, in order.
Value call_shape_function(const Expression& call, const std::vector<Value>& arguments, Builder& builder,
                          Diagnostics& diagnostics);

}  // namespace millrace
