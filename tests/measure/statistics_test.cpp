#include "measure/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace millrace {
namespace {

TEST(Statistics, RanksAreThoseOfTheBinomialTables) {
  // The lower ranks of 95 % intervals of a median, as tables of the sign test have them.
  const std::vector<std::pair<int64_t, int64_t>> expected = {{1, 0},  {5, 0},   {6, 1},   {8, 1},   {9, 2},
                                                             {11, 2}, {12, 3},  {15, 4},  {17, 5},  {20, 6},
                                                             {25, 8}, {30, 10}, {40, 14}, {50, 18}, {100, 40}};
  for (const auto& [samples, rank] : expected) EXPECT_EQ(interval_rank(samples), rank) << samples;
}

// Binomials of up to 60 samples are integers of 64 bits.
TEST(Statistics, RanksAreTheLargestThatCover) {
  for (int64_t n = 1; n <= 60; ++n) {
    std::vector<uint64_t> binomial(static_cast<size_t>(n) + 1, 0);
    binomial[0] = 1;
    for (int64_t row = 1; row <= n; ++row)
      for (auto k = static_cast<size_t>(row); k >= 1; --k) binomial[k] += binomial[k - 1];
    const auto outside = [&](int64_t rank) {  // 20 * 2 * the number of the 2^n cases
      return 40 * static_cast<long double>(std::accumulate(binomial.begin(), binomial.begin() + rank, uint64_t{0}));
    };
    const long double cases = std::pow(2.0L, static_cast<long double>(n));
    const int64_t rank = interval_rank(n);
    EXPECT_LE(outside(rank), cases) << n;
    EXPECT_GT(outside(rank + 1), cases) << n;
  }
}

TEST(Statistics, ManySamplesDoNotUnderflow) {
  for (const int64_t n : {1000, 10'000, 100'000}) {
    // The normal approximation: n / 2 - 0.98 sqrt(n).
    const double expected = static_cast<double>(n) / 2 - 0.97998 * std::sqrt(static_cast<double>(n));
    EXPECT_NEAR(static_cast<double>(interval_rank(n)), expected, 1.0) << n;
  }
}

TEST(Statistics, FewSamplesGiveTheirRange) {
  const Estimate one = estimate({3});
  EXPECT_EQ(one.median, 3);
  EXPECT_EQ(one.low, 3);
  EXPECT_EQ(one.high, 3);
  EXPECT_EQ(one.samples, 1);
  const Estimate four = estimate({4, 1, 3, 2});
  EXPECT_EQ(four.median, 2.5);
  EXPECT_EQ(four.low, 1);
  EXPECT_EQ(four.high, 4);
}

TEST(Statistics, AnOutlierMovesNothing) {
  const Estimate nine = estimate({9, 8, 7, 6, 5, 4, 3, 2, 1});
  EXPECT_EQ(nine.median, 5);
  EXPECT_EQ(nine.low, 2);
  EXPECT_EQ(nine.high, 8);
  const Estimate outlier = estimate({1e9, 8, 7, 6, 5, 4, 3, 2, 1});
  EXPECT_EQ(outlier.median, 5);
  EXPECT_EQ(outlier.high, 8);
}

TEST(Statistics, TheIntervalHoldsTheMedian) {
  std::mt19937_64 random(1);
  for (size_t n = 1; n <= 300; ++n) {
    std::vector<double> samples(n);
    for (double& sample : samples) sample = static_cast<double>(random() % 10);
    const Estimate found = estimate(samples);
    EXPECT_LE(found.low, found.median);
    EXPECT_LE(found.median, found.high);
    EXPECT_EQ(found.samples, static_cast<int64_t>(n));
  }
}

// For skewed samples, such as timings, the interval covers the true median as often as promised.
TEST(Statistics, CoversTheMedianAsOftenAsPromised) {
  std::mt19937_64 random(2);
  constexpr int kRuns = 4000;
  for (const size_t n : {size_t{6}, size_t{9}, size_t{20}, size_t{51}, size_t{200}}) {
    int covered = 0;
    for (int run = 0; run < kRuns; ++run) {
      std::vector<double> samples(n);
      // 1 + exponential, from 53 bits so that every standard library draws the same.
      for (double& sample : samples) sample = 1 - std::log1p(-static_cast<double>(random() >> 11) * 0x1p-53);
      const Estimate found = estimate(samples);
      covered += found.low <= 1 + std::log(2.0) && 1 + std::log(2.0) <= found.high ? 1 : 0;
    }
    EXPECT_GE(covered, kRuns * 0.94) << n;
    EXPECT_LE(covered, kRuns * 0.99) << n;  // not so wide that it is useless
  }
}

TEST(Statistics, TightNeedsEnoughSamplesAndANarrowInterval) {
  EXPECT_FALSE(tight(estimate({1, 1, 1, 1, 1}), 0.5));
  EXPECT_TRUE(tight(estimate({1, 1, 1, 1, 1, 1}), 0));
  const Estimate wide{10, 9, 11.5, 20};
  EXPECT_FALSE(tight(wide, 0.1));
  EXPECT_TRUE(tight(wide, 0.15));
  const Estimate below{10, 8, 10.5, 20};
  EXPECT_FALSE(tight(below, 0.1));
}

}  // namespace
}  // namespace millrace
