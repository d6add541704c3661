#include "measure/memory_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace millrace {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;

// Holds the memory long enough for the watch to notice.
void take(int64_t bytes) {
  const std::vector<char> taken(static_cast<size_t>(bytes), 1);
  std::this_thread::sleep_for(std::chrono::seconds(5));
}

TEST(MemoryWatch, EndsAProcessThatUsesTooMuch) {
  const int64_t most = anonymous_memory() + 64 * kMegabyte;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const MemoryWatch watch(most);
        take(512 * kMegabyte);
      },
      testing::ExitedWithCode(1), "std::bad_alloc: more than its share");
}

TEST(MemoryWatch, LetsOthersRun) {
  const int64_t before = anonymous_memory();
  EXPECT_GT(before, 0);
  const MemoryWatch watch(before + 1024 * kMegabyte);
  const std::vector<char> taken(static_cast<size_t>(32 * kMegabyte), 1);
  EXPECT_GE(anonymous_memory(), 32 * kMegabyte);
}

}  // namespace
}  // namespace millrace
