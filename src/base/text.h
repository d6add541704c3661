// Small text helpers: g++ 12 has no std::format.
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

template <class Range>
std::string join(const Range& parts, std::string_view separator) {
  std::ostringstream stream;
  bool first = true;
  for (const auto& part : parts) {
    if (!first) stream << separator;
    stream << part;
    first = false;
  }
  return stream.str();
}

// `value` with `decimals` digits behind the point.
std::string fixed(double value, int decimals);

std::vector<std::string> split(std::string_view text, char separator);

// Length of the longest valid UTF-8 prefix of `text`; `text.size()` when all of it is valid.
size_t valid_utf8_prefix(std::string_view text);

// The candidate nearest to `word` in edits, or "" when none is near: for "did you mean".
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace millrace
