// Many values at once must be the same as one by one.
#include "base/stored_values.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace millrace {
namespace {

constexpr size_t kStride = 3;

// Around every bound of the format: rounding, ties, the smallest and the largest numbers.
std::vector<double> values_of(StoredType type) {
  std::vector<double> values = {0.0,
                                -0.0,
                                1e-300,
                                -1e-300,
                                1e300,
                                std::numeric_limits<double>::infinity(),
                                -std::numeric_limits<double>::infinity()};
  for (uint64_t bits = 0; bits < 0x8000; bits += type == StoredType::f32 ? 0x101 : 1) {
    const double here = decode(type == StoredType::f32 ? bits << 16 : bits, type);
    if (!std::isfinite(here)) continue;
    const double next = decode((type == StoredType::f32 ? bits << 16 : bits) + 1, type);
    const double middle = std::isfinite(next) ? (here + next) / 2 : here * (1 + 0x1p-12);
    for (const double value : {here, middle, std::nextafter(middle, 0.0), std::nextafter(middle, 1e300)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  return values;
}

TEST(StoredValues, AreEncodedAsOneByOne) {
  for (const StoredType type : {StoredType::f32, StoredType::f16, StoredType::bf16, StoredType::i32}) {
    const std::vector<double> values = values_of(type == StoredType::i32 ? StoredType::f16 : type);
    const auto bytes = static_cast<size_t>(bytes_of(type));
    std::vector<char> stored(values.size() * kStride * bytes);
    encode_run(values.data(), values.size(), type, stored.data(), kStride);
    for (size_t k = 0; k < values.size(); ++k) {
      uint64_t found = 0;
      std::memcpy(&found, stored.data() + k * kStride * bytes, bytes);
      const uint64_t expected = encode(values[k], type) & (~uint64_t{0} >> (64 - 8 * bytes));
      ASSERT_EQ(found, expected) << values[k] << " as " << name_of(type);
    }
  }
}

TEST(StoredValues, AreDecodedAsOneByOne) {
  for (const StoredType type : {StoredType::f16, StoredType::bf16}) {
    std::vector<uint16_t> stored(0x10000 * kStride);
    for (size_t bits = 0; bits < 0x10000; ++bits) stored[bits * kStride] = static_cast<uint16_t>(bits);
    std::vector<double> values(0x10000);
    decode_run(reinterpret_cast<const char*>(stored.data()), values.size(), type, kStride, values.data());
    for (size_t bits = 0; bits < values.size(); ++bits)
      ASSERT_EQ(std::bit_cast<uint64_t>(values[bits]), std::bit_cast<uint64_t>(decode(bits, type))) << bits;
  }
}

TEST(StoredValues, OfFloat32AreDecodedAsOneByOne) {
  const std::vector<float> stored = {0.0F, -0.0F, 1.5F, -3e38F, 1e-45F, std::numeric_limits<float>::infinity()};
  std::vector<double> values(stored.size());
  decode_run(reinterpret_cast<const char*>(stored.data()), stored.size(), StoredType::f32, 1, values.data());
  for (size_t k = 0; k < stored.size(); ++k)
    EXPECT_EQ(std::bit_cast<uint64_t>(values[k]), std::bit_cast<uint64_t>(static_cast<double>(stored[k])));
}

}  // namespace
}  // namespace millrace
