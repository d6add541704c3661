// The order of a plan's launches: what one has just read or written is still in the cache when the next one reads it.
// Test: tests/plan/order_test.cpp
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace {

// A tensor in a layout, as a launch touches it.
struct Touched {
  int stored = 0;  // which one
  int64_t bytes = 0;
  bool written = false;
};

// Launches that are in an order in which they can run, as numbers in a better one: behind each comes, of those that can
// run by then, the one that reads most bytes of what it touched, and of equal ones the first.
std::vector<size_t> order_by_reuse(const std::vector<std::vector<Touched>>& launches);

}  // namespace millrace
