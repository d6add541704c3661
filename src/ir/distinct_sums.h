// How many different sums arithmetic progressions have: the positions that a slice, a window or merged axes touch.
// Tests: tests/ir/distinct_sums_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

struct Progression {
  int64_t stride = 1;  // positive
  int64_t points = 1;  // 0, stride, ..., (points - 1) * stride
};

// The number of different sums of one element of each progression. Exact, unless progressions leave gaps between each
// other's elements and reach further than 65,536 elements: then an upper bound.
int64_t distinct_sums(std::vector<Progression> progressions);

}  // namespace millrace
