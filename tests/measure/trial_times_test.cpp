#include "measure/trial_times.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr double kHang = 60;

TEST(TrialTimes, KernelsFitByWhatTheyTook) {
  TrialTimes times(kHang, 2);
  EXPECT_EQ(times.kernels_until(Deadline::after(-1)), 0);
  EXPECT_EQ(times.kernels_until(Deadline::after(1000)), 4) << "before anything is known";
  EXPECT_EQ(TrialTimes(kHang, 16).kernels_until(Deadline::after(1000)), 32);
  EXPECT_NEAR(times.kernels_until(Deadline::after(2)), 2, 0.1);
  EXPECT_EQ(times.kernels_until(Deadline::after(0.1)), 0);
  EXPECT_TRUE(times.has_time_for(1, Deadline::after(2)));
  EXPECT_FALSE(times.has_time_for(20, Deadline::after(2))) << "a long kernel";
  times.note_compiled(4, 8);
  EXPECT_TRUE(times.has_time_for(20, Deadline::after(50)));
  EXPECT_FALSE(times.has_time_for(20, Deadline::after(30)));
  EXPECT_NEAR(times.kernels_until(Deadline::after(100)), 25, 1) << "half of the time";
  times.note_tried(0, 3);
  EXPECT_NEAR(times.kernels_until(Deadline::after(100)), 10, 1);
  EXPECT_EQ(times.kernels_until(Deadline::after(7)), 1);
  EXPECT_EQ(times.kernels_until(Deadline::after(4)), 0);
  EXPECT_TRUE(times.fits(Deadline::after(10)));
  EXPECT_FALSE(times.fits(Deadline::after(1)));
}

TEST(TrialTimes, AHangCostsAShareOfTheRest) {
  TrialTimes times(kHang, 2);
  EXPECT_EQ(times.timeout(0, Deadline::never()), kHang);
  EXPECT_TRUE(times.is_surely_hung(times.timeout(0, Deadline::never())));
  EXPECT_NEAR(times.timeout(0, Deadline::after(100)), 40, 0.5);
  EXPECT_FALSE(times.is_surely_hung(times.timeout(0, Deadline::after(100))));
  times.note_tried(0, 0.5);
  EXPECT_NEAR(times.timeout(0, Deadline::after(100)), 2.5, 0.1);
  EXPECT_NEAR(times.timeout(1, Deadline::after(100)), 40, 0.5) << "another class computes its reference data first";
  times.note_tried(0, 30);
  EXPECT_NEAR(times.timeout(0, Deadline::after(100)), 20, 0.5);
  EXPECT_LE(times.timeout(0, Deadline::after(0.2)), 0.2);
}

}  // namespace
}  // namespace millrace
