// The pipeline runs every stage through the wrapper, which names and times it and stops at what its verifier rejects.
// The verifiers have tests of their own, next to their stages'.
#include "driver/pipeline.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "plan/small_plan.h"

namespace millrace {
namespace {

std::string names_of(const std::vector<StageTime>& timings) {
  std::vector<std::string> names;
  for (const StageTime& stage : timings) names.push_back(stage.name);
  return join(names, " ");
}

TEST(Pipeline, EveryStageIsNamedAndTimed) {
  std::vector<StageTime> timings;
  Stages stages(&timings);
  const Result<TrainingGraph> training = train(stages, {"small.py", "", {}, ""}, kSmallProgram);
  ASSERT_TRUE(training) << to_string(training.error());
  EXPECT_TRUE(analyze(stages, *training, int64_t{1} << 20));
  EXPECT_TRUE(fuse(stages, *training));
  const Result<Recomputed> fused = fuse_for_plan(stages, *training, Target());
  ASSERT_TRUE(fused) << to_string(fused.error());
  EnumerateOptions enumerating;
  enumerating.libraries = {GemmLibrary::openblas};
  EXPECT_TRUE(find_partitions(stages, fused->training, fused->fused, enumerating));
  EXPECT_TRUE(enumerate(stages, fused->training, fused->fused, enumerating));
  const MadePlan& made = small_plan();
  EXPECT_TRUE(select(stages, made.measurements, SelectMethod::exact));
  PlanOptions options;
  options.scratch_bytes = [](const Launch&) { return int64_t{0}; };
  const Result<StepPlan> plan =
      build_plan(stages, made.training, made.candidates, made.measurements, made.selection, options);
  EXPECT_TRUE(plan) << to_string(plan.error());
  EXPECT_EQ(names_of(timings), "parse differentiate analyze fuse fuse partitions candidates select plan");
  for (const StageTime& stage : timings) EXPECT_GE(stage.seconds, 0) << stage.name;
}

TEST(Pipeline, AStageThatFailsEndsIt) {
  std::vector<StageTime> timings;
  Stages stages(&timings);
  EXPECT_FALSE(train(stages, {"wrong.py", "", {}, ""}, "def f(x"));
  EXPECT_FALSE(train(stages, {"small.py", "", {}, "float8"}, kSmallProgram));
}

TEST(Pipeline, ARejectedArtefactIsNotReturned) {
  std::vector<StageTime> timings;
  Stages stages(&timings);
  const auto seven = [] { return Result<int>(7); };
  const auto rejects = [](int) -> Result<Done> { return Error::make(ErrorKind::failed, "not seven"); };
  const Result<int> rejected = stages.run("count", seven, rejects);
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.error().diagnostics.front().message, "not seven");
  EXPECT_TRUE(timings.empty());
}

// A plan that costs less than its launches take.
TEST(Pipeline, APlanIsVerified) {
  Stages stages;
  const MadePlan& made = small_plan();
  Measurements wrong = made.measurements;
  for (MeasuredPartition& partition : wrong.partitions) {
    for (MeasuredCandidate& candidate : partition.candidates) candidate.seconds = -1;
  }
  PlanOptions options;
  options.scratch_bytes = [](const Launch&) { return int64_t{0}; };
  const Result<StepPlan> plan = build_plan(stages, made.training, made.candidates, wrong, made.selection, options);
  ASSERT_FALSE(plan);
  EXPECT_NE(to_string(plan.error()).find("predicted_seconds: not a time"), std::string::npos)
      << to_string(plan.error());
}

}  // namespace
}  // namespace millrace
