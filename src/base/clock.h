// The time, for measuring how long something takes.
#pragma once

#include <chrono>

namespace millrace {

// Seconds on a clock that is never set.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace millrace
