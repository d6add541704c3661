#include "millrace/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/stored_type.h"

namespace millrace {
namespace {

// Base's own conversion, which shares no code with the header's.
double decoded(StoredType type, uint16_t bits) { return decode(bits, type); }

uint16_t encoded(StoredType type, double value) { return static_cast<uint16_t>(encode(value, type)); }

TEST(Half, AllBitsComeBack) {
  for (uint32_t k = 0; k < 65536; ++k) {
    const auto bits = static_cast<uint16_t>(k);
    const float half = from_float16(bits);
    const float brain = from_bfloat16(bits);
    if (std::isnan(half)) {
      EXPECT_TRUE(std::isnan(decoded(StoredType::f16, bits)));
      EXPECT_TRUE(std::isnan(from_float16(to_float16(half))));
    } else {
      ASSERT_EQ(static_cast<double>(half), decoded(StoredType::f16, bits));
      ASSERT_EQ(to_float16(half), bits);
    }
    if (std::isnan(brain)) {
      EXPECT_TRUE(std::isnan(from_bfloat16(to_bfloat16(brain))));
    } else {
      ASSERT_EQ(static_cast<double>(brain), decoded(StoredType::bf16, bits));
      ASSERT_EQ(to_bfloat16(brain), bits);
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  for (uint32_t k = 0; k < 4'000'000; ++k) {
    const auto value = std::bit_cast<float>(k * 1073U + 7);  // floats of every exponent and both signs
    if (std::isnan(value)) continue;
    ASSERT_EQ(to_float16(value), encoded(StoredType::f16, static_cast<double>(value))) << value;
    ASSERT_EQ(to_bfloat16(value), encoded(StoredType::bf16, static_cast<double>(value))) << value;
  }
  EXPECT_EQ(to_float16(65519.0F), 0x7BFF);
  EXPECT_EQ(to_float16(65520.0F), 0x7C00);
  EXPECT_EQ(to_float16(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(to_float16(0x1p-25F), 0);
  EXPECT_EQ(to_float16(0x1.8p-25F), 1);
}

}  // namespace
}  // namespace millrace
