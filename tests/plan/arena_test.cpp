#include "plan/arena.h"

#include <gtest/gtest.h>

#include <random>

namespace millrace {
namespace {

TEST(Arena, BlocksThatAreNeverAliveTogetherShareBytes) {
  std::vector<ArenaBlock> blocks = {{1000, 0, 1, -1}, {1000, 2, 3, -1}, {500, 1, 2, -1}};
  EXPECT_EQ(place_blocks(blocks, 256), 1024 + 500);
  EXPECT_EQ(blocks[0].offset, 0);
  EXPECT_EQ(blocks[1].offset, 0);
  EXPECT_EQ(blocks[2].offset, 1024);
}

TEST(Arena, TheSmallestGapThatFitsIsTaken) {
  // Two long-lived blocks, with a gap of 768 bytes before the first and of 512 between them.
  std::vector<ArenaBlock> blocks = {{4096, 0, 0, -1}, {3072, 1, 1, -1}, {2048, 0, 1, -1}, {512, 1, 1, -1}};
  EXPECT_EQ(place_blocks(blocks, 256), 6144);
  EXPECT_EQ(blocks[3].offset, 3072);
}

TEST(Arena, NothingTakesNothing) {
  std::vector<ArenaBlock> none;
  EXPECT_EQ(place_blocks(none, 256), 0);
}

TEST(Arena, RandomBlocksNeverOverlap) {
  std::mt19937_64 random(7);
  const auto below = [&](int count) { return static_cast<int>(random() % static_cast<uint64_t>(count)); };
  for (int round = 0; round < 200; ++round) {
    std::vector<ArenaBlock> blocks(static_cast<size_t>(1 + below(60)));
    int64_t sum = 0;
    for (ArenaBlock& block : blocks) {
      block.bytes = 1 + below(5000);
      block.first = below(40);
      block.last = block.first + below(20);
      sum += (block.bytes + 255) / 256 * 256;
    }
    const int64_t end = place_blocks(blocks, 256);
    EXPECT_LE(end, sum);
    for (size_t k = 0; k < blocks.size(); ++k) {
      EXPECT_EQ(blocks[k].offset % 256, 0);
      EXPECT_LE(blocks[k].offset + blocks[k].bytes, end);
      for (size_t other = 0; other < k; ++other) {
        const ArenaBlock& one = blocks[k];
        const ArenaBlock& two = blocks[other];
        const bool together = one.first <= two.last && two.first <= one.last;
        const bool overlap = one.offset < two.offset + two.bytes && two.offset < one.offset + one.bytes;
        EXPECT_FALSE(together && overlap);
      }
    }
  }
}

}  // namespace
}  // namespace millrace
