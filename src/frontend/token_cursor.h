// A position in a list of tokens, with the errors found so far: the base of the parsers. Tests: tests/error/.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/lexer.h"

namespace millrace {

inline constexpr size_t kMaxItems = 4096;  // of one call, tuple, dictionary or parameter list

inline constexpr std::string_view kExpressions =
    "use + - * / @, ** with a constant, comparisons, & | ~, x[1:, None, ...] and the named functions";

bool is_reserved(std::string_view word);

class TokenCursor {
 public:
  TokenCursor(const std::vector<Token>& tokens, Diagnostics& diagnostics)
      : tokens_(tokens), diagnostics_(diagnostics) {}

 protected:
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead(size_t count = 1) const { return tokens_[std::min(at_ + count, tokens_.size() - 1)]; }
  bool at_symbol(std::string_view text) const { return now().kind == TokenKind::symbol && now().text == text; }
  bool at_name(std::string_view text) const { return now().kind == TokenKind::name && now().text == text; }
  void advance() {
    if (now().kind != TokenKind::end) ++at_;
  }

  // Whether a ';' ended the statement before this token, with another one after it on the same line.
  bool after_semicolon() const { return at_ > 0 && tokens_[at_ - 1].text == ";" && now().kind != TokenKind::newline; }

  // Reports the first error of a statement and sets broken().
  void report(SourceLocation location, std::string_view message, std::string_view remedy);

  // Whether the statement has an error; every loop over tokens tests it.
  bool broken() const { return broken_; }
  void begin_statement() { broken_ = false; }

  // The current token for a message.
  std::string shown() const;

  bool take_symbol(std::string_view text);
  void expect_symbol(std::string_view text, std::string_view remedy);
  std::string expect_name(std::string_view remedy);
  void expect_end_of_line();

  // Skips to the end of the line, and over an indented block below it.
  void skip_statement();

  bool has_too_many_errors() const { return diagnostics_.full(); }

 private:
  const std::vector<Token>& tokens_;
  Diagnostics& diagnostics_;
  size_t at_ = 0;
  bool broken_ = false;
};

}  // namespace millrace
