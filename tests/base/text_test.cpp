#include "base/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/significant.h"

namespace millrace {
namespace {

using Parts = std::vector<std::string>;

TEST(Text, ConcatTakesAnythingPrintable) {
  EXPECT_EQ(concat("a", 1, ' ', std::string("b"), std::string_view("c"), -2.5), "a1 bc-2.5");
  EXPECT_EQ(concat(true, " ", uint8_t{'x'}, " ", std::numeric_limits<int64_t>::min(), " ", uint64_t{1} << 63),
            "1 x -9223372036854775808 9223372036854775808");
}

TEST(Text, JoinPutsTheSeparatorBetween) {
  EXPECT_EQ(join(Parts{}, ", "), "");
  EXPECT_EQ(join(Parts{"a"}, ", "), "a");
  EXPECT_EQ(join(std::vector<int>{1, 2, 3}, ", "), "1, 2, 3");
}

TEST(Text, FixedRoundsToTheDecimals) {
  EXPECT_EQ(fixed(3.14159, 2), "3.14");
  EXPECT_EQ(fixed(2.0, 0), "2");
  EXPECT_EQ(fixed(-0.999, 1), "-1.0");
  EXPECT_EQ(fixed(std::numeric_limits<double>::infinity(), 3), "inf");
  // The longest double fits, with decimals to spare.
  const std::string longest = fixed(-std::numeric_limits<double>::max(), 20);
  EXPECT_EQ(longest.size(), 1 + 309 + 1 + 20U);
  EXPECT_EQ(longest.substr(0, 5), "-1797");
}

TEST(Text, SignificantDigits) {
  EXPECT_EQ(significant(0.1, 17), "0.10000000000000001");
  EXPECT_EQ(significant(0.25, 17), "0.25");
  EXPECT_EQ(significant(65504, 6), "65504");
  EXPECT_EQ(significant(3.40282e38, 6), "3.40282e+38");
  EXPECT_EQ(significant(-std::numeric_limits<double>::max(), 17), "-1.7976931348623157e+308");
  EXPECT_EQ(significant(-std::numeric_limits<double>::infinity(), 6), "-inf");
}

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("", ','), Parts{""});
  EXPECT_EQ(split("a", ','), Parts{"a"});
  EXPECT_EQ(split("a,,b,", ','), (Parts{"a", "", "b", ""}));
  EXPECT_EQ(split(",", ','), (Parts{"", ""}));
}

TEST(Text, SplitAndJoinUndoEachOther) {
  for (const std::string text : {"", ",", "a,b", ",,a,,"}) EXPECT_EQ(join(split(text, ','), ","), text);
}

TEST(Text, Utf8TakesWhatTheStandardAllows) {
  for (const std::string_view valid :
       {"", "plain", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF",
        "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z"})
    EXPECT_EQ(valid_utf8_prefix(valid), valid.size()) << valid;
  EXPECT_EQ(valid_utf8_prefix(std::string_view("a\0b", 3)), 3U);
}

TEST(Text, Utf8StopsAtTheFirstWrongSequence) {
  for (const std::string_view wrong : {
           "\x80",              // a continuation without a lead
           "\xC0\x80",          // overlong
           "\xC1\xBF",          // overlong
           "\xE0\x9F\xBF",      // overlong
           "\xF0\x8F\xBF\xBF",  // overlong
           "\xED\xA0\x80",      // a surrogate
           "\xF4\x90\x80\x80",  // above U+10FFFF
           "\xF5\x80\x80\x80",  // above U+10FFFF
           "\xFF",              // never a lead
           "\xC3",              // broken off
           "\xE2\x82",          // broken off
           "\xF0\x9F\x98",      // broken off
           "\xC3z",             // not continued
           "\xE2\x82z",         // not continued
       }) {
    EXPECT_EQ(valid_utf8_prefix(wrong), 0U) << wrong;
    EXPECT_EQ(valid_utf8_prefix("ok \xC3\xA9" + std::string(wrong)), 5U) << wrong;
  }
}

TEST(Text, NearestFindsATypo) {
  const Parts words = {"softmax", "dropout", "layernorm", "rmsnorm", "relu"};
  EXPECT_EQ(nearest("sotfmax", words), "softmax");
  EXPECT_EQ(nearest("layer_norm", words), "layernorm");
  EXPECT_EQ(nearest("relu", words), "relu");
  EXPECT_EQ(nearest("rmsnorms", words), "rmsnorm");
}

TEST(Text, NearestIsSilentWhenNothingIsNear) {
  EXPECT_EQ(nearest("convolution", {"softmax", "relu"}), "");
  EXPECT_EQ(nearest("relu", {}), "");
  EXPECT_EQ(nearest("load", {"log"}), "") << "two edits of four letters are not near";
  // Too long for a typo, and comparing takes quadratic time.
  const std::string endless(100000, 'x');
  EXPECT_EQ(nearest(endless, {endless}), "");
}

TEST(Text, NearestPrefersTheFirstOfEquals) { EXPECT_EQ(nearest("axb", {"aab", "abb"}), "aab"); }

}  // namespace
}  // namespace millrace
