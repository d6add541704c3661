#include "report/live_bytes.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(LiveBytes, CountsBuffersFromTheirFirstToTheirLastLaunch) {
  StepPlan plan;
  plan.launches.resize(3);
  plan.launches[2].pass = Pass::backward;
  const auto add = [&](int64_t bytes, int first, int last, BufferLocation location) {
    PlanBuffer buffer;
    buffer.bytes = bytes;
    buffer.first = first;
    buffer.last = last;
    buffer.location = location;
    plan.buffers.push_back(buffer);
  };
  add(1, 0, 2, BufferLocation::arena);  // saved
  add(10, 0, 1, BufferLocation::arena);
  add(100, 1, 1, BufferLocation::arena);
  add(1000, 0, 2, BufferLocation::argument);
  add(10000, -1, -1, BufferLocation::arena);  // not used
  const std::vector<LiveBytes> live = live_bytes(plan);
  ASSERT_EQ(live.size(), 3U);
  EXPECT_EQ(live[0].saved, 1);
  EXPECT_EQ(live[0].temporary, 10);
  EXPECT_EQ(live[1].temporary, 110);
  EXPECT_EQ(live[2].all(), 1);
  EXPECT_EQ(peak_of(live), 1U);
  EXPECT_EQ(peak_of({}), 0U);
}

TEST(LiveBytes, WithoutReuseTheScratchMemoryStays) {
  StepPlan plan;
  plan.sum_bytes = 300;
  plan.scratch_offset = 256;
  plan.scratch_bytes = 256;
  plan.arena_bytes = 512;
  EXPECT_EQ(arena_text(plan), "512 B (without reuse: 556 B)");
}

}  // namespace
}  // namespace millrace
