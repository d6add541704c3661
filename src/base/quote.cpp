#include "base/quote.h"

#include <array>
#include <cstdio>

#include "base/text.h"

namespace millrace {
namespace {

std::string escape_of(unsigned char c) {
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "\\x%02x", c);
  return text.data();
}

bool is_control(unsigned char c) { return c < ' ' || c == 0x7F; }

// U+0080 to U+009F, which some terminals obey.
bool begins_c1(std::string_view text, size_t at) {
  return at + 1 < text.size() && text[at] == '\xC2' && static_cast<unsigned char>(text[at + 1]) < 0xA0;
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string made;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text[at]);
    const bool c1 = begins_c1(text, at);
    if (c1) {
      made += escape_of(static_cast<unsigned char>(text[++at]));
    } else if (is_control(c) && kept.find(text[at]) == std::string_view::npos) {
      made += escape_of(c);
    } else {
      made += text[at];
    }
  }
  return made;
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("/._-+:=@%").find(c) != std::string_view::npos;
}

// Quotes as bash and zsh read what cannot be printed: $'…', in which a backslash escapes.
std::string with_escapes(std::string_view text) {
  std::string made = "$'";
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const bool c1 = begins_c1(text, at);
    if (c1) made += escape_of(static_cast<unsigned char>(text[at++]));
    if (c1 || is_control(static_cast<unsigned char>(c)))
      made += escape_of(static_cast<unsigned char>(text[at]));
    else
      made += c == '\'' || c == '\\' ? concat("\\", c) : std::string(1, c);
  }
  return made + "'";
}

std::string quoted(std::string_view text) {
  if (printable_line(text) != text) return with_escapes(text);
  std::string made = "'";
  for (const char c : text) made += c == '\'' ? "'\\''" : std::string(1, c);
  return made + "'";
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, "\n\t"); }

std::string printable_line(std::string_view text) { return escaped(text, ""); }

std::string without_controls(std::string_view text, char replacement) {
  std::string made;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool c1 = begins_c1(text, at);
    if (c1) ++at;
    made += c1 || is_control(static_cast<unsigned char>(text[at])) ? replacement : text[at];
  }
  return made;
}

std::string indented(std::string_view text) {
  std::string made;
  for (const char c : text) made += c == '\n' ? "\n    " : std::string(1, c);
  return made;
}

std::string shell_word(std::string_view text) {
  if (text.starts_with('-')) return shell_word(concat("./", text));
  for (const char c : text) {
    if (!is_plain(c)) return quoted(text);
  }
  return text.empty() ? "''" : std::string(text);
}

}  // namespace millrace
