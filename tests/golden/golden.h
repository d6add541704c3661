// Compares a text with a file under tests/ and shows differing lines; MILLRACE_UPDATE_GOLDEN=1 rewrites the file.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/text.h"

namespace millrace {

inline std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A diff of both texts: ' ' in both, '-' only expected, '+' only found, with two common lines around each difference.
inline std::string difference(const std::string& expected, const std::string& found) {
  const std::vector<std::string> a = split(expected, '\n');
  const std::vector<std::string> b = split(found, '\n');
  std::vector<std::vector<int>> common(a.size() + 1, std::vector<int>(b.size() + 1, 0));
  for (size_t i = a.size(); i-- > 0;) {
    for (size_t k = b.size(); k-- > 0;)
      common[i][k] = a[i] == b[k] ? common[i + 1][k + 1] + 1 : std::max(common[i + 1][k], common[i][k + 1]);
  }
  std::vector<std::string> lines;
  size_t i = 0;
  size_t k = 0;
  while (i < a.size() || k < b.size()) {
    if (i < a.size() && k < b.size() && a[i] == b[k]) {
      lines.push_back(" " + a[i++]);
      ++k;
    } else if (k == b.size() || (i < a.size() && common[i + 1][k] >= common[i][k + 1])) {
      lines.push_back("-" + a[i++]);
    } else {
      lines.push_back("+" + b[k++]);
    }
  }
  constexpr size_t kContext = 2;
  std::string text;
  bool gap = false;
  for (size_t at = 0; at < lines.size(); ++at) {
    const size_t from = at < kContext ? 0 : at - kContext;
    const size_t to = std::min(lines.size(), at + kContext + 1);
    const bool near =
        std::any_of(lines.begin() + static_cast<std::ptrdiff_t>(from), lines.begin() + static_cast<std::ptrdiff_t>(to),
                    [](const std::string& line) { return line[0] != ' '; });
    if (near) text += (gap ? "@@\n" : "") + lines[at] + "\n";
    gap = !near && !text.empty();
  }
  return text;
}

// `path` is relative to tests/; `suite` is the name of the test for `./millrace test`.
inline testing::AssertionResult matches_file(const std::string& found, const std::string& path, const char* suite) {
  const std::string file = concat(MILLRACE_SOURCE_DIR, "/tests/", path);
  if (std::getenv("MILLRACE_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(file, std::ios::binary) << found;
    return testing::AssertionSuccess();
  }
  const std::string expected = text_of_file(file);
  if (expected == found) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "tests/" << path << " (-) is not what came out (+):\n"
                                     << difference(expected, found)
                                     << "When that is meant: MILLRACE_UPDATE_GOLDEN=1 ./millrace test " << suite
                                     << "\n";
}

}  // namespace millrace
