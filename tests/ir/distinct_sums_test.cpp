#include "ir/distinct_sums.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace millrace {
namespace {

int64_t by_enumeration(const std::vector<Progression>& progressions) {
  std::set<int64_t> sums{0};
  for (const Progression& one : progressions) {
    std::set<int64_t> next;
    for (const int64_t sum : sums) {
      for (int64_t k = 0; k < one.points; ++k) next.insert(sum + k * one.stride);
    }
    sums = next;
  }
  return static_cast<int64_t>(sums.size());
}

// Windows of 3 by 3 with stride 2 in the first column of 5: rows overlap, columns do not.
TEST(DistinctSums, CountsWindowsOfMergedAxesOnce) { EXPECT_EQ(distinct_sums({{10, 9}, {5, 3}, {1, 3}}), 57); }

TEST(DistinctSums, CountsOnePointOfNothing) {
  EXPECT_EQ(distinct_sums({}), 1);
  EXPECT_EQ(distinct_sums({{7, 1}}), 1);
  EXPECT_EQ(distinct_sums({{7, 4}, {1, 0}}), 0);
}

TEST(DistinctSums, AgreesWithEnumeration) {
  std::mt19937 random(17);
  const auto draw = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(random); };
  for (int round = 0; round < 20000; ++round) {
    std::vector<Progression> progressions(static_cast<size_t>(draw(4)));
    for (Progression& one : progressions) one = {draw(12), draw(5)};
    ASSERT_EQ(distinct_sums(progressions), by_enumeration(progressions)) << "in round " << round;
  }
}

TEST(DistinctSums, IsAnUpperBoundWhereCountingTakesLong) {
  const std::vector<Progression> sparse = {{2, 3}, {3, 100000}};
  EXPECT_GE(distinct_sums(sparse), by_enumeration(sparse));
  EXPECT_LE(distinct_sums(sparse), 300000);
}

}  // namespace
}  // namespace millrace
