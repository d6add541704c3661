#include "report/metrics.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

Piece piece() {
  Piece made;
  made.flop = 100;
  made.input_words = 30;
  made.output_words = 20;
  made.least_words = 50;
  made.moved_words = 100;
  made.bytes = 400;
  made.seconds = 2;
  return made;
}

TEST(Metrics, mue_is_words_needed_over_moved_times_bandwidth) {
  const Peaks peaks{1000, "a", 800, "b"};
  EXPECT_DOUBLE_EQ(mue(piece(), peaks), 0.5 * (400.0 / 2 / 800));
  EXPECT_DOUBLE_EQ(fraction_of_peak(piece(), peaks), 100.0 / 2 / 1000);
  EXPECT_DOUBLE_EQ(piece().flop_per_word(), 2);
}

TEST(Metrics, the_limit_that_explains_more_of_the_time_holds) {
  const std::optional<Limit> memory = limit_of(piece(), {1000, "a", 800, "b"});
  ASSERT_TRUE(memory);
  EXPECT_FALSE(memory->flop);
  EXPECT_DOUBLE_EQ(memory->fraction, 0.25);
  const std::optional<Limit> flop = limit_of(piece(), {100, "a", 800, "b"});
  ASSERT_TRUE(flop);
  EXPECT_TRUE(flop->flop);
  EXPECT_DOUBLE_EQ(flop->fraction, 0.5);
}

TEST(Metrics, what_was_not_measured_has_no_limit) {
  Piece unknown = piece();
  unknown.seconds = 0;
  EXPECT_FALSE(limit_of(unknown, {100, "a", 800, "b"}));
  EXPECT_EQ(mue(unknown, {100, "a", 800, "b"}), 0);
  EXPECT_EQ(fraction_of_peak(unknown, {}), 0);
}

TEST(Metrics, as_written_is_the_fastest_way_of_the_first_or_the_pinned_layouts) {
  Measurements measurements;
  measurements.tensors = {{"x", {"AB", "BA"}, kNoLayout}, {"y", {"AB", "BA"}, 1}};
  MeasuredPart part{"p", false, {0}, {1}, {}};
  EXPECT_FALSE(seconds_as_written(measurements, part));
  part.ways = {{"", {1, 1}, 1, 1, 1}, {"", {0, 1}, 3, 3, 3}, {"", {0, 1}, 2, 2, 2}, {"", {0, 0}, 1, 1, 1}};
  EXPECT_EQ(seconds_as_written(measurements, part), 2.0);
}

}  // namespace
}  // namespace millrace
