// A parallel loop. Tests: tests/reference/interpreter_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace millrace {

// Calls body(begin, end) for slices of [0, count) on all hardware threads; on fewer if slices would be smaller than
// `least`. Slices must be independent.
template <class Body>
void in_parallel(int64_t count, int64_t least, const Body& body) {
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const int64_t slices = std::clamp<int64_t>(count / std::max<int64_t>(least, 1), 1, cores);
  std::vector<std::thread> threads;
  for (int64_t k = 1; k < slices; ++k)
    threads.emplace_back([&body, count, slices, k] { body(count * k / slices, count * (k + 1) / slices); });
  body(0, count / slices);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace millrace
