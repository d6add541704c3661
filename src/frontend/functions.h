// The functions that a program may call: NumPy's and those of millrace.numpy. Tests: tests/frontend/lower_test.cpp,
// tests/error/functions.py.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "frontend/builder.h"
#include "frontend/syntax.h"
#include "frontend/value.h"

namespace millrace {

// Whether `name` is one of them. Einsum is not: its first argument is text.
bool is_named_function(const std::string& name);

std::vector<std::string> named_functions();

// Lowers the call; `arguments` are its children's values, in order.
Value call_named_function(const Expression& call, const std::vector<Value>& arguments, Builder& builder,
                          Diagnostics& diagnostics);

}  // namespace millrace
