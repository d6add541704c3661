#include "device/cpu/half_floats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "base/text.h"
#include "device/cpu/denormals.h"

namespace millrace {
namespace {

class HalfFloats : public testing::TestWithParam<StoredType> {};

TEST_P(HalfFloats, WidensAllOfThem) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(halves.size());
  widen(GetParam(), halves.data(), wide.data(), static_cast<int64_t>(halves.size()), 2);
  for (size_t i = 0; i < halves.size(); ++i) {
    const double expected = decode(halves[i], GetParam());
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(static_cast<float>(expected)), std::bit_cast<uint32_t>(wide[i])) << i;
    }
  }
}

// Every value and every midpoint of two neighbours, with the floats next to them; then random floats.
std::vector<float> numbers_to_narrow(StoredType type) {
  std::vector<float> numbers;
  for (uint64_t half = 0; half < 65535; ++half) {
    const auto low = static_cast<float>(decode(half, type));
    const auto high = static_cast<float>(decode(half + 1, type));
    const float middle = low / 2 + high / 2;
    for (const float at : {low, middle}) {
      numbers.push_back(at);
      numbers.push_back(std::nextafter(at, std::numeric_limits<float>::infinity()));
      numbers.push_back(std::nextafter(at, -std::numeric_limits<float>::infinity()));
    }
  }
  for (const float edge : {65519.996F, 65520.0F, 65535.0F, 65536.0F, 3.4e38F, 3.39e38F}) {
    numbers.push_back(edge);
    numbers.push_back(-edge);
  }
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp)
  for (int i = 0; i < 200000; ++i) numbers.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  return numbers;
}

TEST_P(HalfFloats, NarrowsToTheNearest) {
  const std::vector<float> numbers = numbers_to_narrow(GetParam());
  std::vector<uint16_t> halves(numbers.size());
  narrow(GetParam(), numbers.data(), halves.data(), static_cast<int64_t>(numbers.size()), 2);
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (std::isnan(numbers[i])) {
      ASSERT_TRUE(std::isnan(decode(halves[i], GetParam()))) << i;
    } else {
      ASSERT_EQ(encode(numbers[i], GetParam()), halves[i]) << numbers[i];
    }
  }
}

// The setting around the products of a plan.
TEST_P(HalfFloats, NarrowsToTheNearestWhereDenormalsAreFlushed) {
  const std::vector<float> numbers = numbers_to_narrow(GetParam());
  std::vector<uint16_t> kept(numbers.size());
  std::vector<uint16_t> flushed(numbers.size());
  narrow(GetParam(), numbers.data(), kept.data(), static_cast<int64_t>(numbers.size()), 1);
  const DenormalScope scope(Denormals::flush, 1);
  narrow(GetParam(), numbers.data(), flushed.data(), static_cast<int64_t>(numbers.size()), 1);
  for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(kept[i], flushed[i]) << numbers[i];
}

TEST_P(HalfFloats, WritesNothingAfterTheEnd) {
  for (int64_t count = 0; count < 40; ++count) {
    std::vector<float> wide(static_cast<size_t>(count) + 1, 1.0F);
    std::vector<uint16_t> halves(static_cast<size_t>(count) + 1, 0x1234);
    narrow(GetParam(), wide.data(), halves.data(), count, 2);
    ASSERT_EQ(0x1234, halves.back()) << count;
    widen(GetParam(), halves.data(), wide.data(), count, 2);
    for (const float value : wide) ASSERT_EQ(1.0F, value) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HalfFloats, testing::Values(StoredType::f16, StoredType::bf16),
                         [](const auto& suite) { return std::string(name_of(suite.param)); });

}  // namespace
}  // namespace millrace
