#include "measure/trial_times.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr double kHang = 60;

TEST(TrialTimes, KernelsFitByWhatTheyTook) {
  TrialTimes times(kHang);
  EXPECT_EQ(times.kernels_until(Deadline::after(-1)), 0);
  EXPECT_EQ(times.kernels_until(Deadline::after(1000)), 8) << "before anything is known";
  times.note_compiled(4, 8);
  EXPECT_NEAR(times.kernels_until(Deadline::after(100)), 50, 1);
  times.note_tried(0, 3);
  EXPECT_NEAR(times.kernels_until(Deadline::after(100)), 20, 1);
  EXPECT_TRUE(times.fits(Deadline::after(10)));
  EXPECT_FALSE(times.fits(Deadline::after(1)));
}

TEST(TrialTimes, AHangCostsAShareOfTheRest) {
  TrialTimes times(kHang);
  EXPECT_EQ(times.timeout(0, Deadline::never()), kHang);
  EXPECT_TRUE(times.is_surely_hung(times.timeout(0, Deadline::never())));
  EXPECT_NEAR(times.timeout(0, Deadline::after(100)), 10, 0.5);
  EXPECT_FALSE(times.is_surely_hung(times.timeout(0, Deadline::after(100))));
  times.note_tried(0, 0.5);
  EXPECT_NEAR(times.timeout(0, Deadline::after(100)), 2.5, 0.1);
  EXPECT_NEAR(times.timeout(1, Deadline::after(100)), 10, 0.5) << "another class computes its reference data first";
  EXPECT_LE(times.timeout(0, Deadline::after(0.2)), 0.2);
}

}  // namespace
}  // namespace millrace
