// Where in one arena blocks lie that are alive at different times. Test: tests/plan/arena_test.cpp
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

struct ArenaBlock {
  int64_t bytes = 0;
  int first = 0;  // alive from this launch
  int last = 0;   // to this one
  int64_t offset = 0;
};

// Sets the offsets, multiples of `alignment`, so that no two blocks that are alive at once overlap, and returns where
// the last of them ends. Larger blocks are placed first, each into the smallest gap that it fits.
int64_t place_blocks(std::vector<ArenaBlock>& blocks, int64_t alignment);

}  // namespace millrace
