#include "device/cpu/denormals.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace millrace {
namespace {

constexpr int kThreads = 3;
constexpr float kSmallest = std::numeric_limits<float>::min();  // that is normal

float half_of_smallest() {
  volatile float smallest = kSmallest;
  return smallest * 0.5F;
}

std::vector<Denormals> all(Denormals setting) { return std::vector<Denormals>(kThreads, setting); }

TEST(Denormals, AreFlushedInAllThreadsOfAScopeAndKeptAfterIt) {
  EXPECT_EQ(denormals_of_threads(kThreads), all(Denormals::keep));
  EXPECT_EQ(half_of_smallest(), kSmallest / 2);
  {
    const DenormalScope scope(Denormals::flush, kThreads);
    EXPECT_EQ(denormals_of_threads(kThreads), all(Denormals::flush));
    EXPECT_EQ(half_of_smallest(), 0);
  }
  EXPECT_EQ(denormals_of_threads(kThreads), all(Denormals::keep));
  EXPECT_EQ(half_of_smallest(), kSmallest / 2);
}

TEST(Denormals, StayAsTheyAreInAScopeThatKeepsThem) {
  const DenormalScope scope(Denormals::keep, kThreads);
  EXPECT_EQ(denormals_of_threads(kThreads), all(Denormals::keep));
}

TEST(Denormals, OfACallerThatFlushesStayFlushed) {
  const DenormalScope callers(Denormals::flush, kThreads);
  { const DenormalScope scope(Denormals::flush, kThreads); }
  EXPECT_EQ(denormals_of_threads(kThreads), all(Denormals::flush));
}

}  // namespace
}  // namespace millrace
