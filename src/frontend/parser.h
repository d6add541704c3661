// Tokens to syntax tree. What is outside the language is complained about, and parsing goes on with the next statement.
#pragma once

#include <vector>

#include "frontend/lexer.h"
#include "frontend/syntax.h"

namespace millrace {

Module parse_module(const std::vector<Token>& tokens, Diagnostics& diagnostics);

}  // namespace millrace
