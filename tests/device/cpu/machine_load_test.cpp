#include "device/cpu/machine_load.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace millrace {
namespace {

constexpr const char* kStat =
    "cpu  100 20 30 4000 50 6 7 8 0 0\n"
    "cpu0 50 10 15 2000 25 3 3 4 0 0\n"
    "cpu1 50 10 15 2000 25 3 4 4 0 0\n"
    "intr 12345\n";

TEST(MachineLoad, CountsWhatIsNotIdle) {
  EXPECT_DOUBLE_EQ(core_seconds(kStat, 100).busy, 1.71);
  EXPECT_DOUBLE_EQ(core_seconds(kStat, 100).all, 42.21);
  EXPECT_LT(core_seconds("", 100).busy, 0);
  EXPECT_LT(core_seconds("intr 5\n", 100).busy, 0);
}

// A message said that others used 4.4 of 2 cores: this process had waited between reading its clock and the load.
TEST(MachineLoad, OthersUseNoMoreThanThereIs) {
  const CoreSeconds begin{100, 1000};
  EXPECT_DOUBLE_EQ(others_cores(begin, {102, 1004}, 0.5, 2).value_or(-1), 0.75) << "two seconds, 1.5 of others' work";
  EXPECT_DOUBLE_EQ(others_cores(begin, {104, 1004}, 0, 2).value_or(-1), 2) << "all of it";
  EXPECT_DOUBLE_EQ(others_cores(begin, {104.02, 1004}, 0, 2).value_or(-1), 2) << "rounded ticks";
  EXPECT_DOUBLE_EQ(others_cores(begin, {101, 1004}, 1.01, 2).value_or(-1), 0) << "only our own";
  EXPECT_FALSE(others_cores(begin, {100.02, 1000.02}, 0, 2)) << "less than a few ticks";
  EXPECT_FALSE(others_cores({}, {104, 1004}, 0, 2)) << "unknown";
}

TEST(MachineLoad, ReadsTheAvailableMemory) {
  EXPECT_EQ(available_memory_in("MemTotal:  900 kB\nMemAvailable:     700 kB\nSwapFree: 1 kB\n"), 700 * 1024);
  for (const char* const text : {"", "MemTotal: 900 kB\n", "MemAvailable: -3 kB\n", "MemAvailable: x\n",
                                 "MemAvailable: 9223372036854775807 kB\n"})
    EXPECT_EQ(available_memory_in(text), 0) << text;
  EXPECT_GT(available_memory(), 0);
}

TEST(MachineLoad, CountsCores) {
  EXPECT_EQ(cores_in(kStat), 2);
  EXPECT_EQ(cores_in(""), 0);
}

TEST(MachineLoad, OurOwnWorkIsNoDisturbance) {
  const LoadMeter meter;
  const double end = now() + 0.3;
  double sum = 0;
  while (now() < end) sum += now();
  ASSERT_GT(sum, 0);
  const std::optional<double> others = meter.others_cores();
  ASSERT_TRUE(others);

  EXPECT_GE(*others, 0);
}

TEST(MachineLoad, SaysNothingIfOthersAreQuiet) {
  EXPECT_EQ(disturbance(std::nullopt, 4), "");
  EXPECT_EQ(disturbance(0.1, 1 << 20), "");
}

TEST(MachineLoad, SaysHowMuchOthersUse) {
  const std::string text = disturbance(1.5, 1 << 20);
  EXPECT_NE(text.find("other processes use 1.5 of the"), std::string::npos) << text;
}

}  // namespace
}  // namespace millrace
