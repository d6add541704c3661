// The module's sizes and other numbers, with the user's choices (`--size tiny`, `--size J=128`) in their place.
#pragma once

#include <map>
#include <string>

#include "frontend/diagnostics.h"
#include "frontend/frontend.h"
#include "frontend/syntax.h"
#include "frontend/value.h"

namespace millrace {

using Numbers = std::map<std::string, Value>;

// A chosen name keeps the chosen value; what is computed from it follows.
Numbers evaluate_sizes(const Module& module, const ProgramOptions& options, Diagnostics& diagnostics);

// The value of an expression of numbers alone.
Value evaluate_number(const Expression& expression, const Numbers& numbers, Diagnostics& diagnostics);

}  // namespace millrace
