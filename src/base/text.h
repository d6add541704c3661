// Small text helpers: g++ 12 has no std::format. Tests: tests/base/text_test.cpp.
#pragma once

#include <array>
#include <charconv>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace millrace {

// Appends `part` as a stream would write it. Texts and integers use no stream, because constructing one is slow.
template <class Part>
void append(std::string& text, const Part& part) {
  if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
    text += std::string_view(part);
  } else if constexpr (std::is_integral_v<Part> && sizeof(Part) > 1) {
    std::array<char, 24> digits{};
    text.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), part).ptr);
  } else {
    std::ostringstream stream;
    stream << part;
    text += stream.str();
  }
}

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string text;
  (append(text, parts), ...);
  return text;
}

template <class Range>
std::string join(const Range& parts, std::string_view separator) {
  std::string text;
  bool first = true;
  for (const auto& part : parts) {
    if (!first) text += separator;
    append(text, part);
    first = false;
  }
  return text;
}

// `value` with `decimals` digits after the point.
std::string fixed(double value, int decimals);

std::vector<std::string> split(std::string_view text, char separator);

// Length of the longest valid UTF-8 prefix of `text`; `text.size()` if all of it is valid.
size_t valid_utf8_prefix(std::string_view text);

// The candidate with the smallest edit distance to `word`, or "" if none is near: for "did you mean".
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace millrace
