#include "frontend/token_cursor.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace millrace {

bool is_reserved(std::string_view word) {
  static constexpr auto kReserved = std::to_array<std::string_view>(
      {"and",    "as",     "assert", "async",  "await",   "break",    "class", "continue", "def",
       "del",    "elif",   "else",   "except", "finally", "for",      "from",  "global",   "if",
       "import", "in",     "is",     "lambda", "None",    "nonlocal", "not",   "or",       "pass",
       "raise",  "return", "try",    "True",   "False",   "while",    "with",  "yield"});
  return std::find(kReserved.begin(), kReserved.end(), word) != kReserved.end();
}

void TokenCursor::report(SourceLocation location, std::string_view message, std::string_view remedy) {
  if (!broken_) diagnostics_.report(location, message, remedy);
  broken_ = true;
}

std::string TokenCursor::shown() const {
  switch (now().kind) {
    case TokenKind::end: return "the end of the text";
    case TokenKind::newline: return "the end of the line";
    case TokenKind::indent: return "an indented line";
    case TokenKind::dedent: return "the end of the indented lines";
    default: return concat("'", now().text.substr(0, 40), "'");
  }
}

bool TokenCursor::take_symbol(std::string_view text) {
  if (!at_symbol(text)) return false;
  advance();
  return true;
}

void TokenCursor::expect_symbol(std::string_view text, std::string_view remedy) {
  if (!take_symbol(text)) report(now().location, concat("expected '", text, "', found ", shown()), remedy);
}

std::string TokenCursor::expect_name(std::string_view remedy) {
  if (now().kind != TokenKind::name) {
    report(now().location, concat("expected a name, found ", shown()), remedy);
    return {};
  }
  std::string name(now().text);
  advance();
  return name;
}

void TokenCursor::expect_end_of_line() {
  if (broken_) return;
  if (now().kind == TokenKind::newline) {
    advance();
  } else if (now().kind != TokenKind::end && now().kind != TokenKind::dedent) {
    report(now().location, concat("expected the end of the statement, found ", shown()), kExpressions);
  }
}

void TokenCursor::skip_statement() {
  while (now().kind != TokenKind::newline && now().kind != TokenKind::end && now().kind != TokenKind::dedent) advance();
  while (now().kind == TokenKind::newline) advance();
  if (now().kind != TokenKind::indent) return;
  int levels = 0;
  do {
    if (now().kind == TokenKind::indent) ++levels;
    if (now().kind == TokenKind::dedent) --levels;
    advance();
  } while (levels > 0 && now().kind != TokenKind::end);
}

}  // namespace millrace
