// Breaks texts into lines for a terminal. Test: tests/report/wrap_test.cpp
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct Wrapping {
  size_t columns = 100;
  std::string first_indent;  // before the first line
  std::string indent;        // before the others
};

// The parts with the separator between them, in lines of at most this many columns where parts allow it. Every line
// ends with a line break; no parts, no lines.
std::string wrapped(const std::vector<std::string>& parts, std::string_view separator, const Wrapping& wrapping);

// The words of a text. A percent sign stays with its number.
std::string wrapped(std::string_view text, const Wrapping& wrapping);

}  // namespace millrace
