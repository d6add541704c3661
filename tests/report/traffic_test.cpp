#include "report/traffic.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Traffic, AddsReadsAndWritesOfEveryLaunch) {
  Candidates candidates;
  candidates.partitions.resize(1);
  candidates.partitions[0].partition.name = "two reads";
  candidates.partitions[0].partition.reads.resize(2);
  StepPlan plan;
  plan.buffers.resize(3);
  const std::vector<std::string> names = {"x", "y", "x"};  // x in two layouts
  for (size_t k = 0; k < names.size(); ++k) {
    plan.buffers[k].tensor = names[k];
    plan.buffers[k].bytes = k == 1 ? 10 : 100;
  }
  plan.launches.resize(2);
  plan.launches[0].conversion_of = "x";
  plan.launches[0].buffers = {0, 2};
  plan.launches[1].partition = "two reads";
  plan.launches[1].buffers = {2, kNoBuffer, 1};
  const std::vector<TensorTraffic> traffic = tensor_traffic(plan, candidates);
  ASSERT_EQ(traffic.size(), 2U);
  EXPECT_EQ(traffic[0].tensor, "x");
  EXPECT_EQ(traffic[0].read_bytes, 200);
  EXPECT_EQ(traffic[0].written_bytes, 100);
  EXPECT_EQ(traffic[0].reads, 2);
  EXPECT_EQ(traffic[1].bytes(), 10);
  EXPECT_EQ(traffic[1].writes, 1);
}

}  // namespace
}  // namespace millrace
