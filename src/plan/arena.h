// Offsets in one arena for blocks with different lifetimes. Test: tests/plan/arena_test.cpp
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

struct ArenaBlock {
  int64_t bytes = 0;
  int first = 0;  // alive from this launch
  int last = 0;   // to this one, inclusive
  int64_t offset = 0;
};

// Sets the offsets, multiples of `alignment`, so that no two blocks alive at the same time overlap, and returns the end
// of the last block. Larger blocks are placed first, each into the smallest gap that fits.
int64_t place_blocks(std::vector<ArenaBlock>& blocks, int64_t alignment);

}  // namespace millrace
