// A clock for measuring durations. Tests: tests/measure/.
#pragma once

#include <chrono>

namespace millrace {

// Seconds on a monotonic clock.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace millrace
