#include "report/exploration_report.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(ExplorationReport, CountsWhatWasTriedAndMarksEstimates) {
  Measurements measurements;
  // The fastest of each combination of layouts, and an estimate, which has no confidence interval.
  measurements.partitions = {{"product", false, {}, {}, {{"a", {0}, 1, 1, 1}, {"b", {1}, 2, 2, 2}}},
                             {"kernel", false, {}, {}, {{"c", {0}, 5, 0, 0}}},
                             {"nothing", false, {}, {}, {}}};
  Exploration exploration;
  exploration.tried = 4;
  exploration.configurations = 9;
  exploration.partitions = {
      {"product",
       {{"a", 1, "measured", ""}, {"b", 2, "measured", ""}, {"slow", 8, "measured", ""}, {"wrong", 0, "wrong", ""}}},
      {"kernel", {}}};
  const std::string text = exploration_text(measurements, exploration, {}, 100);
  EXPECT_TRUE(
      text.starts_with("partition  tried  fastest  slowest  fastest candidate\n"
                       "product        4   1.00 s   8.00 s  a\n"
                       "kernel         0  ~5.00 s           c\n"
                       "nothing        0\n"))
      << text;
}

}  // namespace
}  // namespace millrace
