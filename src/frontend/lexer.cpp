#include "frontend/lexer.h"

#include <array>

#include "base/text.h"

namespace millrace {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) { return begins_name(c) || is_digit(c); }

constexpr size_t kMaxIndents = 100;
constexpr size_t kMaxName = 200;

class Lexer {
 public:
  Lexer(std::string_view text, Diagnostics& diagnostics) : text_(text), diagnostics_(diagnostics) {}

  std::vector<Token> run() {
    while (at_ < text_.size() && !diagnostics_.full()) {
      if (line_begins_) {
        indentation();
      } else {
        token();
      }
    }
    if (!tokens_.empty() && tokens_.back().kind != TokenKind::newline) push(TokenKind::newline, at_, 0);
    while (indents_.size() > 1) {
      indents_.pop_back();
      push(TokenKind::dedent, at_, 0);
    }
    push(TokenKind::end, at_, 0);
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void push(TokenKind kind, size_t begin, size_t length) {
    tokens_.push_back({kind, text_.substr(begin, length), SourceLocation{begin}});
  }

  // Measures the indentation of a line that has more than a comment on it.
  void indentation() {
    size_t width = 0;
    size_t begin = at_;
    while (peek() == ' ' || peek() == '\t') {
      width += peek() == '\t' ? 8 - width % 8 : 1;
      ++at_;
    }
    if (peek() == '\r') ++at_;
    if (peek() == '#') skip_comment();
    if (at_ >= text_.size()) return;
    if (peek() == '\n') {
      ++at_;
      return;
    }
    line_begins_ = false;
    if (width > indents_.back()) {
      if (indents_.size() >= kMaxIndents) {
        diagnostics_.report({at_}, "this line is indented too deeply", "indent a function's body by one level");
        at_ = text_.size();
        return;
      }
      indents_.push_back(width);
      push(TokenKind::indent, begin, 0);
    }
    while (width < indents_.back()) {
      indents_.pop_back();
      push(TokenKind::dedent, begin, 0);
    }
    if (width != indents_.back()) {
      diagnostics_.report({at_}, "this line's indentation matches no line above it",
                          "indent it as the statements around it");
    }
  }

  void skip_comment() {
    while (at_ < text_.size() && peek() != '\n') ++at_;
  }

  void token() {
    const char c = peek();
    if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (c == '#') {
      skip_comment();
    } else if (c == '\n') {
      if (brackets_ == 0) {
        push(TokenKind::newline, at_, 0);
        line_begins_ = true;
      }
      ++at_;
    } else if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
      at_ += peek(1) == '\n' ? 2 : 3;
    } else if (begins_name(c)) {
      const size_t begin = at_;
      while (continues_name(peek())) ++at_;
      if (at_ - begin > kMaxName) {
        diagnostics_.report({begin}, concat("this name has ", at_ - begin, " characters"),
                            concat("at most ", kMaxName, " are allowed"));
      }
      push(TokenKind::name, begin, at_ - begin);
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      number();
    } else if (c == '"' || c == '\'') {
      string();
    } else {
      symbol();
    }
  }

  void number() {
    const size_t begin = at_;
    while (continues_name(peek()) || peek() == '.' ||
           ((peek() == '+' || peek() == '-') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E'))) {
      ++at_;
    }
    push(TokenKind::number, begin, at_ - begin);
  }

  void string() {
    const size_t begin = at_;
    const char quote = peek();
    const bool triple = peek(1) == quote && peek(2) == quote;
    const size_t quotes = triple ? 3 : 1;
    at_ += quotes;
    const size_t content = at_;
    while (at_ < text_.size()) {
      if (peek() == '\\') {
        at_ += 2;
        continue;
      }
      if (!triple && peek() == '\n') break;
      if (peek() == quote && (!triple || (peek(1) == quote && peek(2) == quote))) {
        tokens_.push_back({TokenKind::string, text_.substr(content, at_ - content), SourceLocation{begin}});
        at_ += quotes;
        return;
      }
      ++at_;
    }
    at_ = std::min(at_, text_.size());
    diagnostics_.report({begin}, "this string does not end",
                        triple ? "close it with three quotes" : "close it on the same line");
  }

  void symbol() {
    static constexpr std::array<std::string_view, 10> kLong = {
        "...", "->", "**", "//", "<=", ">=", "==", "!=", ":=", "@="};
    static constexpr std::string_view kShort = "()[]{}:,.=+-*/<>@;%|&^~!";
    for (const std::string_view symbol : kLong) {
      if (text_.substr(at_, symbol.size()) == symbol) {
        push(TokenKind::symbol, at_, symbol.size());
        at_ += symbol.size();
        return;
      }
    }
    const char c = peek();
    if (kShort.find(c) != std::string_view::npos) {
      if (c == '(' || c == '[' || c == '{') ++brackets_;
      if ((c == ')' || c == ']' || c == '}') && brackets_ > 0) --brackets_;
      push(c == ';' && brackets_ == 0 ? TokenKind::newline : TokenKind::symbol, at_, 1);
      ++at_;
      return;
    }
    diagnostics_.report({at_}, "this character is not part of the language", "names are ASCII letters, digits and '_'");
    ++at_;
    while (at_ < text_.size() && (static_cast<unsigned char>(peek()) & 0xC0) == 0x80) ++at_;
  }

  std::string_view text_;
  Diagnostics& diagnostics_;
  std::vector<Token> tokens_;
  std::vector<size_t> indents_ = {0};
  size_t at_ = 0;
  size_t brackets_ = 0;
  bool line_begins_ = true;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text, Diagnostics& diagnostics) { return Lexer(text, diagnostics).run(); }

}  // namespace millrace
