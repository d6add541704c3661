// Whether a test runs all of its cases or a slice: `./millrace test --long` sets MILLRACE_LONG.
#pragma once

#include <cstdlib>

namespace millrace {

inline bool is_long_run() {
  const char* const value = std::getenv("MILLRACE_LONG");
  return value != nullptr && *value != '\0';
}

}  // namespace millrace
