#include "frontend/lexer.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/text.h"

namespace millrace {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) { return begins_name(c) || is_digit(c); }

// A character beyond ASCII, of a text that is valid UTF-8.
struct WideCharacter {
  uint32_t code = 0;
  size_t bytes = 1;
};

WideCharacter wide_character(std::string_view text) {
  const auto byte = [&](size_t k) { return k < text.size() ? static_cast<unsigned char>(text[k]) : 0U; };
  const unsigned first = byte(0);
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
  uint32_t code = bytes == 1 ? 0 : first & (0x7FU >> bytes);
  for (size_t k = 1; k < bytes; ++k) code = code << 6 | (byte(k) & 0x3FU);
  return {code, bytes};
}

// Whether a character beyond ASCII may be part of a name: spaces, punctuation, arrows, operators, symbols and private
// characters may not. Python's rule needs tables of Unicode; this one takes whole blocks.
bool is_letter(uint32_t code) {
  struct Block {
    uint32_t first, last;
  };
  static constexpr auto kOther = std::to_array<Block>(
      {{0x0, 0xA9},      {0xAB, 0xB4},       {0xB6, 0xBF},       {0xD7, 0xD7},       {0xF7, 0xF7},     {0x2000, 0x203E},
       {0x2041, 0x2053}, {0x2055, 0x2070},   {0x207A, 0x207E},   {0x208A, 0x208F},   {0x20A0, 0x20CF}, {0x2190, 0x2BFF},
       {0x2E00, 0x2E7F}, {0x3000, 0x3004},   {0x3008, 0x3020},   {0x3030, 0x3030},   {0xD800, 0xF8FF}, {0xFE10, 0xFE1F},
       {0xFE30, 0xFE32}, {0xFE35, 0xFE4C},   {0xFE50, 0xFE6F},   {0xFEFF, 0xFEFF},   {0xFF00, 0xFF0F}, {0xFF1A, 0xFF20},
       {0xFFE0, 0xFFFF}, {0x1F000, 0x1FAFF}, {0xE0000, 0xE00FF}, {0xF0000, 0x10FFFF}});
  return std::none_of(kOther.begin(), kOther.end(),
                      [&](const Block& block) { return code >= block.first && code <= block.last; });
}

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // Python ignores one before a program
constexpr size_t kMaxIndents = 100;
constexpr size_t kMaxName = 200;

class Lexer {
 public:
  Lexer(std::string_view text, Diagnostics& diagnostics) : text_(text), diagnostics_(diagnostics) {}

  std::vector<Token> run() {
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
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
                          "indent it like the statements around it");
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
    } else if (begins_name(c) || at_letter()) {
      const size_t begin = at_;
      while (continues_name(peek()) || at_letter()) at_ += continues_name(peek()) ? 1 : letter_bytes();
      if ((peek() == '"' || peek() == '\'') && prefixed_string(begin)) return;
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

  bool at_letter() const {
    return (static_cast<unsigned char>(peek()) & 0x80) != 0 && is_letter(wide_character(text_.substr(at_)).code);
  }
  size_t letter_bytes() const { return wide_character(text_.substr(at_)).bytes; }

  // A string with letters before its quote: r"…" is a string as written, other prefixes are errors.
  bool prefixed_string(size_t begin) {
    std::string prefix(text_.substr(begin, at_ - begin));
    for (char& c : prefix) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    static constexpr std::string_view kFormatted = " f fr rf b br rb ";
    if (prefix == "r" || prefix == "u") {
      string();
      return true;
    }
    if (kFormatted.find(concat(" ", prefix, " ")) == std::string_view::npos) return false;
    diagnostics_.report({begin}, concat("strings with the prefix '", prefix, "' are not supported"),
                        "a program computes with tensors and numbers; write messages as comments");
    string();
    return true;
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
    static constexpr auto kLong =
        std::to_array<std::string_view>({"...", "**=", "//=", "<<=", ">>=", "->", "**", "//", "<<", ">>", "<=", ">=",
                                         "==",  "!=",  ":=",  "+=",  "-=",  "*=", "/=", "%=", "@=", "&=", "|=", "^="});
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
    diagnostics_.report({at_}, "this character is not part of the language", "names are letters, digits and '_'");
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
