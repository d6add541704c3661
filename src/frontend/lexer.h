// Text to tokens, as Python's: line ends count outside brackets, and indentation becomes tokens.
#pragma once

#include <string_view>
#include <vector>

#include "frontend/diagnostics.h"

namespace millrace {

enum class TokenKind { name, number, string, symbol, newline, indent, dedent, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;  // a string's is what stands between its quotes
  SourceLocation location;
};

// Complains about bytes that begin no token and goes on behind them. Ends with an `end` token.
std::vector<Token> tokenize(std::string_view text, Diagnostics& diagnostics);

}  // namespace millrace
