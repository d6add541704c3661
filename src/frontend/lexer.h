// Text to tokens, as in Python: line ends count outside brackets, and indentation becomes tokens.
// Tests: tests/error/, tests/frontend/hostile_test.cpp.
#pragma once

#include <string_view>
#include <vector>

#include "frontend/diagnostics.h"

namespace millrace {

enum class TokenKind { name, number, string, symbol, newline, indent, dedent, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;  // of a string: without its quotes
  SourceLocation location;
};

// Reports bytes that begin no token and continues after them. The last token is `end`.
std::vector<Token> tokenize(std::string_view text, Diagnostics& diagnostics);

}  // namespace millrace
