#include "measure/guarded_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace millrace {
namespace {

TEST(GuardedMemory, NoticesEveryByteBeforeAndAfter) {
  for (const int64_t bytes : {0, 1, 100, 4096, 100'000}) {
    const GuardedMemory memory(bytes);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0U);
    std::memset(memory.data(), 0, static_cast<size_t>(bytes));
    EXPECT_TRUE(memory.is_intact());
    for (const int64_t at : {int64_t{-4096}, int64_t{-1}, bytes, bytes + 4095}) {
      const char before = memory.data()[at];
      memory.data()[at] = 0;
      EXPECT_FALSE(memory.is_intact()) << at;
      memory.data()[at] = before;
    }
    EXPECT_TRUE(memory.is_intact());
  }
}

TEST(Fingerprint, ChangesWithEveryBit) {
  for (const size_t size : {1U, 7U, 8U, 31U, 33U, 100U}) {
    std::vector<char> bytes(size, 3);
    const auto found = [&] { return fingerprint(bytes.data(), static_cast<int64_t>(size)); };
    const uint64_t before = found();
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      EXPECT_NE(found(), before) << bit;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    }
    EXPECT_EQ(found(), before);
  }
}

TEST(Fingerprint, ChangesInLargeMemory) {
  std::vector<char> bytes(5'000'001, 1);
  const auto found = [&] { return fingerprint(bytes.data(), static_cast<int64_t>(bytes.size())); };
  const uint64_t before = found();
  for (const size_t at : {size_t{0}, size_t{1'250'000}, size_t{2'500'000}, size_t{4'999'999}, size_t{5'000'000}}) {
    bytes[at] = 2;
    EXPECT_NE(found(), before) << at;
    bytes[at] = 1;
  }
  EXPECT_EQ(found(), before);
}

}  // namespace
}  // namespace millrace
