// Tokens to syntax tree. After a syntax error, parsing continues with the next statement. Tests: tests/error/,
// tests/frontend/hostile_test.cpp.
#pragma once

#include <vector>

#include "frontend/lexer.h"
#include "frontend/syntax.h"

namespace millrace {

Module parse_module(const std::vector<Token>& tokens, Diagnostics& diagnostics);

}  // namespace millrace
