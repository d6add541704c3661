#include "frontend/diagnostics.h"

#include <algorithm>
#include <cstddef>

#include "base/quote.h"
#include "base/text.h"

namespace millrace {
namespace {

// How much of a long line is shown around the location.
constexpr size_t kBefore = 60;
constexpr size_t kAfter = 40;

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

int characters_in(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return !continues_character(c); }));
}

// Quoted text may contain control characters or half of a UTF-8 character: neither may reach a terminal.
std::string harmless(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    result += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    result += '?';
    text.remove_prefix(1);
    while (!text.empty() && continues_character(text.front())) text.remove_prefix(1);
  }
  return without_controls(result, ' ');
}

}  // namespace

void Diagnostics::report(std::string_view message, std::string_view remedy) {
  if (full()) return;
  Diagnostic diagnostic;
  diagnostic.file = file_;
  diagnostic.message = harmless(message);
  diagnostic.remedy = harmless(remedy);
  diagnostics_.push_back(std::move(diagnostic));
}

void Diagnostics::report(SourceLocation location, std::string_view message, std::string_view remedy) {
  if (!full()) diagnostics_.push_back(located(location, message, remedy));
}

void Diagnostics::warn(SourceLocation location, std::string_view message, std::string_view remedy) {
  if (!silent_ && warnings_.size() < kMost) warnings_.push_back(located(location, message, remedy));
}

Diagnostic Diagnostics::located(SourceLocation location, std::string_view message, std::string_view remedy) const {
  const size_t offset = std::min(location.offset, text_.size());
  const size_t last_break = offset == 0 ? std::string_view::npos : text_.rfind('\n', offset - 1);
  const size_t begin = last_break == std::string_view::npos ? 0 : last_break + 1;
  const size_t end = std::min(text_.find('\n', offset), text_.size());

  Diagnostic diagnostic;
  diagnostic.file = file_;
  diagnostic.line =
      static_cast<int>(std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(begin), '\n')) + 1;
  diagnostic.column = characters_in(text_.substr(begin, offset - begin)) + 1;
  diagnostic.message = harmless(message);
  diagnostic.remedy = harmless(remedy);

  size_t from = offset - begin > kBefore ? offset - kBefore : begin;
  size_t to = end - offset > kAfter ? offset + kAfter : end;
  while (from < offset && continues_character(text_[from])) ++from;
  while (to > offset && to < text_.size() && continues_character(text_[to])) --to;
  diagnostic.excerpt = harmless(text_.substr(from, to - from));
  diagnostic.caret = characters_in(text_.substr(from, offset - from));
  while (diagnostic.excerpt.ends_with(' ') && characters_in(diagnostic.excerpt) > diagnostic.caret)
    diagnostic.excerpt.pop_back();
  return diagnostic;
}

}  // namespace millrace
