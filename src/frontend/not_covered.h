// Functions and keywords of NumPy and Python that Millrace lacks: what to write instead of each, or why it is not
// covered. Tests: tests/error/not_covered_*.py, tests/frontend/not_covered_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct NotCovered {
  std::string message;
  std::string remedy;
};

// A function of NumPy or a built-in of Python: `prefix` is np.linalg of np.linalg.inv, and empty for print.
bool is_not_covered_function(std::string_view prefix, std::string_view name);
NotCovered not_covered_function(std::string_view prefix, std::string_view name);

// A method or attribute of a tensor, such as x.sort() or x.real.
bool is_not_covered_method(std::string_view name);
NotCovered not_covered_method(std::string_view name);

// A keyword of Python, such as while.
bool is_not_covered_word(std::string_view word);
NotCovered not_covered_word(std::string_view word);

// All names of the three tables, for tests: `linalg.inv`, `print`.
std::vector<std::string> not_covered_numpy();
std::vector<std::string> not_covered_built_in();
std::vector<std::string> not_covered_methods();
std::vector<std::string> not_covered_words();

}  // namespace millrace
