#include "report/metrics.h"

#include <gtest/gtest.h>

#include <set>

#include "analysis/analyze.h"
#include "fusion/fuse.h"
#include "plan/random_plan.h"

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

TEST(Metrics, MueIsWordsNeededOverWordsMovedTimesBandwidth) {
  const Peaks peaks{1000, "a", 800, "b"};
  EXPECT_DOUBLE_EQ(mue(piece(), peaks), 0.5 * (400.0 / 2 / 800));
  EXPECT_DOUBLE_EQ(fraction_of_peak(piece(), peaks), 100.0 / 2 / 1000);
  EXPECT_DOUBLE_EQ(piece().flop_per_word(), 2);
}

TEST(Metrics, TheLimitThatExplainsMoreOfTheTimeCounts) {
  const std::optional<Limit> memory = limit_of(piece(), {1000, "a", 800, "b"});
  ASSERT_TRUE(memory);
  EXPECT_FALSE(memory->flop);
  EXPECT_DOUBLE_EQ(memory->fraction, 0.25);
  const std::optional<Limit> flop = limit_of(piece(), {100, "a", 800, "b"});
  ASSERT_TRUE(flop);
  EXPECT_TRUE(flop->flop);
  EXPECT_DOUBLE_EQ(flop->fraction, 0.5);
}

TEST(Metrics, UnmeasuredLaunchesHaveNoLimit) {
  Piece unknown = piece();
  unknown.seconds = 0;
  EXPECT_FALSE(limit_of(unknown, {100, "a", 800, "b"}));
  EXPECT_EQ(mue(unknown, {100, "a", 800, "b"}), 0);
  EXPECT_EQ(fraction_of_peak(unknown, {}), 0);
}

TEST(Metrics, AsWrittenIsTheFastestCandidateWithTheFirstOrPinnedLayouts) {
  Measurements measurements;
  measurements.tensors = {{"x", {"AB", "BA"}, kNoLayout}, {"y", {"AB", "BA"}, 1}};
  MeasuredPartition partition{"p", false, {0}, {1}, {}};
  EXPECT_FALSE(seconds_as_written(measurements, partition));
  partition.candidates = {{"", {1, 1}, 1, 1, 1}, {"", {0, 1}, 3, 3, 3}, {"", {0, 1}, 2, 2, 2}, {"", {0, 0}, 1, 1, 1}};
  EXPECT_EQ(seconds_as_written(measurements, partition), 2.0);
}

// Each launch moves its plan's buffers once: a mask that is stored as bits or regenerated moves no words.
TEST(Metrics, MasksCountAsThePlanStoresThem) {
  const char* const program = "A = 6\nB = 24\n\n\ndef f(x: float32[A, B]):\n    return dropout(x)\n";
  std::set<std::string> seen;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    PlanChoice choice;
    choice.seed = seed;
    const MadePlan made = make_plan(program, choice);
    const FusedGraph fused = fuse(made.training);
    const Result<Analysis> analysis = analyze(made.training, 1 << 20);
    ASSERT_TRUE(analysis);
    const Exploration exploration;
    const ReportArtefacts artefacts{
        made.training, fused, *analysis, made.candidates, made.measurements, exploration, made.plan, "a folder", "f.py",
        "made up",     0,     false};
    const StepMetrics metrics = measure_step(artefacts);
    ASSERT_EQ(metrics.after.size(), made.plan.launches.size());
    for (size_t k = 0; k < metrics.after.size(); ++k) {
      double stored = 0;
      for (const int number : made.plan.launches[k].buffers) {
        if (number == kNoBuffer) {
          seen.insert("regenerated");
          continue;
        }
        const PlanBuffer& buffer = made.plan.buffers[static_cast<size_t>(number)];
        if (buffer.layout == "bits") seen.insert("bits");
        stored += static_cast<double>(buffer.bytes);
      }
      EXPECT_DOUBLE_EQ(metrics.after[k].bytes, stored) << seed << ": " << metrics.after[k].name;
    }
  }
  EXPECT_EQ(seen, (std::set<std::string>{"bits", "regenerated"}));
}

}  // namespace
}  // namespace millrace
