#include "device/cpu/ceilings.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// Far below any processor that Millrace runs on.
TEST(Ceilings, AreMeasured) {
  const Ceilings ceilings = measure_ceilings({2, int64_t{1} << 20});
  EXPECT_GT(ceilings.flop, 1e8);
  EXPECT_GT(ceilings.cache_bytes, 1e8);
  EXPECT_GT(ceilings.memory_bytes, 1e7);
}

TEST(Ceilings, OfTheMemoryOnlyOnDemand) { EXPECT_EQ(measure_ceilings({1, 0}).memory_bytes, 0); }

}  // namespace
}  // namespace millrace
