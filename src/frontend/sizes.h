// Evaluates the module's sizes and other numbers, with the user's `--size tiny` and `--size J=128` applied.
// Tests: tests/frontend/sizes_test.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "frontend/diagnostics.h"
#include "frontend/frontend.h"
#include "frontend/syntax.h"
#include "frontend/value.h"

namespace millrace {

using Numbers = std::map<std::string, Value>;

// A name set by the user keeps that value; sizes computed from it change accordingly.
Numbers evaluate_sizes(const Module& module, const ProgramOptions& options, Diagnostics& diagnostics);

// The value of an expression of constants: a number, None, or a tuple of them.
Value evaluate_number(const Expression& expression, const Numbers& numbers, Diagnostics& diagnostics);

// float('inf'), whose argument is a text; nothing for other calls.
std::optional<Value> infinite_float(const Expression& call);

}  // namespace millrace
