#include "reference/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace millrace {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers of Random123.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}, 7), (Words{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}, 7),
            (Words{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, 7),
            (Words{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}));
}

TEST(Dropout, ComparesTheElementsDrawWithTheThreshold) {
  // Elements 0 to 7 of seed, subsequence and step zero have the halves of the first known answer's words, the lower
  // ones first.
  const std::array<uint32_t, 8> draws = {0xb709, 0x5f6f, 0x3f64, 0x0d89, 0x1f81, 0x4f12, 0x0a48, 0x4f73};
  const auto keeps = [](uint64_t element, double probability) { return dropout_keeps(0, 0, 0, element, probability); };
  for (uint64_t e = 0; e < draws.size(); ++e) {
    EXPECT_TRUE(keeps(e, draws[e] * 0x1p-16)) << e;
    EXPECT_TRUE(keeps(e, (draws[e] + 0.49) * 0x1p-16)) << e;
    EXPECT_FALSE(keeps(e, (draws[e] + 0.5) * 0x1p-16)) << e;
  }
}

TEST(Dropout, PutsSeedElementStreamAndStepWhereTheDefinitionSays) {
  const uint64_t seed = 0x0123456789abcdef;
  const uint64_t element = 0xa'0000'000f;  // e/8 = 0x1'4000'0001, e%8 = 7
  const uint32_t word = philox4x32({0x40000001, 1, 7, 9}, {0x89abcdef, 0x01234567}, kMaskRounds)[3];
  const double fraction = (word >> 16) * 0x1p-16;
  EXPECT_TRUE(dropout_keeps(seed, 9, 7, element, fraction));
  EXPECT_FALSE(dropout_keeps(seed, 9, 7, element, fraction + 0x1p-16));
}

TEST(Dropout, AlwaysKeepsSome) {
  int kept = 0;
  for (uint64_t e = 0; e < 1 << 20; ++e) kept += dropout_keeps(42, 1, 2, e, 1 - 0x1p-50) ? 1 : 0;
  EXPECT_NEAR(kept, 16, 16);  // one draw of 2^16
  EXPECT_GT(kept, 0);
}

TEST(Dropout, KeepsAboutTheRightShare) {
  int kept = 0;
  for (uint64_t e = 0; e < 100000; ++e) kept += dropout_keeps(42, 1, 2, e, 0.3) ? 1 : 0;
  EXPECT_NEAR(kept, 70000, 600);  // four standard deviations
  for (uint64_t e = 0; e < 1000; ++e) EXPECT_TRUE(dropout_keeps(42, 1, 2, e, 0));
}

TEST(UniformDraw, UsesTwoWordsPerElement) {
  const Words words = philox4x32({1, 0, 5, 0x6d696c6c}, {11, 0});
  const auto draw = [](uint32_t high, uint32_t low) { return std::ldexp(high * 0x1p21 + (low >> 11), -52) - 1; };
  EXPECT_EQ(uniform_draw(11, 5, 2), draw(words[0], words[1]));
  EXPECT_EQ(uniform_draw(11, 5, 3), draw(words[2], words[3]));
}

TEST(UniformDraw, IsUniformFromMinusOneToOne) {
  double sum = 0;
  double squares = 0;
  const int count = 100000;
  for (uint64_t e = 0; e < count; ++e) {
    const double x = uniform_draw(1, 0, e);
    ASSERT_GE(x, -1);
    ASSERT_LT(x, 1);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 1.0 / 3, 0.01);
}

// Many at once are the same as one by one, wherever a slice begins and ends.
TEST(Philox, DrawsManyAsOneByOne) {
  const uint64_t seed = 0x0123456789abcdef;
  for (const auto& [begin, end] :
       {std::pair<uint64_t, uint64_t>{0, 40}, {3, 4}, {5, 23}, {7, 7}, {0xffffffff8, 0x1000000021}}) {
    uint64_t next = begin;
    for_each_kept(seed, 9, 7, begin, end, 0.4, [&](uint64_t element, bool kept) {
      EXPECT_EQ(element, next++);
      EXPECT_EQ(kept, dropout_keeps(seed, 9, 7, element, 0.4));
    });
    EXPECT_EQ(next, end);
    next = begin;
    for_each_draw(seed, 9, begin, end, [&](uint64_t element, double draw) {
      EXPECT_EQ(element, next++);
      EXPECT_EQ(draw, uniform_draw(seed, 9, element));
    });
    EXPECT_EQ(next, end);
  }
}

}  // namespace
}  // namespace millrace
