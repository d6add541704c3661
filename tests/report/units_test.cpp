#include "report/units.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Units, BytesHaveTheUnitThatFits) {
  EXPECT_EQ(shown_bytes(0), "0 B");
  EXPECT_EQ(shown_bytes(1023), "1023 B");
  EXPECT_EQ(shown_bytes(1024), "1.0 KiB");
  EXPECT_EQ(shown_bytes(1536), "1.5 KiB");
  EXPECT_EQ(shown_bytes((int64_t{1} << 20) - 1), "1.0 MiB");
  EXPECT_EQ(shown_bytes(int64_t{5} << 30), "5.0 GiB");
  EXPECT_EQ(shown_bytes(int64_t{3} << 50), "3072.0 TiB");
}

TEST(Units, SecondsHaveTheUnitThatFits) {
  EXPECT_EQ(shown_seconds(2.5), "2.50 s");
  EXPECT_EQ(shown_seconds(0.0125), "12.50 ms");
  EXPECT_EQ(shown_seconds(1.25e-6), "1.25 µs");
  EXPECT_EQ(shown_seconds(8e-8), "80.00 ns");
  EXPECT_EQ(shown_seconds(0), "0.00 µs");
  EXPECT_EQ(round_seconds(1e-7), "100 ns");
  EXPECT_EQ(round_seconds(2.5e-3), "2.5 ms");
  EXPECT_EQ(round_seconds(30), "30 s");
  EXPECT_EQ(round_seconds(0), "0");
}

TEST(Units, CountsHaveCommas) {
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(about(38123456), "about 38,000,000 (estimated)");
}

}  // namespace
}  // namespace millrace
