#include "measure/shard.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace millrace {
namespace {

TEST(Shard, EveryCandidateIsInExactlyOne) {
  std::vector<int> sizes(16, 0);
  for (int candidate = 0; candidate < 1600; ++candidate) {
    int found = 0;
    for (uint64_t number = 1; number <= 16; ++number) {
      if (!Shard{number, 16}.has("map 4x5", concat("0213 012; rows loops 0.1 vector 1 threads ", candidate))) continue;
      ++found;
      ++sizes[number - 1];
    }
    EXPECT_EQ(found, 1) << candidate;
  }
  for (const int size : sizes) EXPECT_NEAR(size, 100, 50);
}

TEST(Shard, IsTheSameOnEveryMachine) {
  EXPECT_TRUE((Shard{1, 1}.has("a", "b")));
  std::string shares;
  for (const char* candidate : {"a", "b", "c", "d", "e", "f", "g", "h"})
    shares += (Shard{1, 2}.has("partition", candidate)) ? "1" : "2";
  EXPECT_EQ(shares, "21221121");
}

TEST(Shard, ParsesAndRejects) {
  const Result<Shard> shard = parse_shard("3/16");
  ASSERT_TRUE(shard);
  EXPECT_EQ(shard->number, 3U);
  EXPECT_EQ(shard->count, 16U);
  EXPECT_EQ(parse_shard("")->count, 1U);
  for (const char* wrong : {"3", "0/4", "5/4", "a/b", "1/", "/2", "1/2/3", "-1/2", "1/99999999999"})
    EXPECT_FALSE(parse_shard(wrong)) << wrong;
}

}  // namespace
}  // namespace millrace
