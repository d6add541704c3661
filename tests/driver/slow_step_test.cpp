#include "driver/slow_step.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(SlowStep, CountsDenormalsOfTheTypeThatComputes) {
  EXPECT_EQ(denormal_share(DType::float32, {1, 0, 0x1p-127, -0x1p-140}), 0.5);
  EXPECT_EQ(denormal_share(DType::float16, {0x1p-20, 1}), 0);  // it is normal in float32
  EXPECT_EQ(denormal_share(DType::float64, {0x1p-140, 0x1p-1030}), 0.5);
  EXPECT_EQ(denormal_share(DType::float32, {}), 0);
}

TEST(SlowStep, IsExaminedOnlyInTime) {
  EXPECT_TRUE(has_time_to_examine(0.1, 1));
  EXPECT_FALSE(has_time_to_examine(0.6, 4));
  EXPECT_FALSE(has_time_to_examine(1e-6, 0));
  EXPECT_FALSE(has_time_to_examine(1e-6, -1));
}

TEST(SlowStep, BlamesNobodyWithoutEvidence) {
  const std::string text = explained({"q einsum d_x", 82.8e-3, 3e-3, 0, 0.1, ""});
  EXPECT_EQ(text,
            "By itself, 'q einsum d_x' takes 82.80 ms, not the predicted 3.00 ms. The numbers are not denormal and "
            "the machine is "
            "otherwise idle; millrace bench times each launch again.");
}

TEST(SlowStep, SaysWhatItSaw) {
  EXPECT_EQ(
      explained({"", 0, 0, 0.25, 0, ""}),
      "Observed: 25.00 % of an output's numbers are denormal, which the processor computes slowly: give typical inputs "
      "with --in FILE.");
  EXPECT_EQ(explained({"", 0, 0, 0, 1.5, "powersave"}),
            "Observed: other processes use 1.5 cores; the clock governor is powersave.");
}

}  // namespace
}  // namespace millrace
