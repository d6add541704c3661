// The functions that a program may call by name: NumPy's and the named ones of millrace.numpy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "frontend/builder.h"
#include "frontend/syntax.h"
#include "frontend/value.h"

namespace millrace {

// Whether `name` is one of them (einsum apart, whose first argument is text).
bool is_named_function(const std::string& name);

std::vector<std::string> named_functions();

// Lowers the call; `arguments` are its children's values, in order.
Value call_named_function(const Expression& call, const std::vector<Value>& arguments, Builder& builder,
                          Diagnostics& diagnostics);

}  // namespace millrace
