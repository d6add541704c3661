#include "report/answers.h"

#include <gtest/gtest.h>

#include "report/report_sample.h"

namespace millrace {
namespace {

TEST(Answers, TheLargestGainIsWhereTheLimitExplainsLeast) {
  StepMetrics metrics;
  metrics.peaks = {1e9, "", 1e9, ""};
  Piece near_the_limit;
  near_the_limit.name = "near";
  near_the_limit.bytes = 9e8;
  near_the_limit.seconds = 1;
  Piece far = near_the_limit;
  far.name = "far";
  far.bytes = 1e8;
  far.seconds = 0.5;
  metrics.after = {near_the_limit, far};
  const Gain gain = largest_gain(metrics);
  ASSERT_NE(gain.launch, nullptr);
  EXPECT_EQ(gain.launch->name, "far");
  EXPECT_NEAR(gain.seconds, 0.4, 1e-12);
  metrics.peaks = {};
  EXPECT_EQ(largest_gain(metrics).launch, nullptr);
}

TEST(Answers, EveryQuestionHasAnAnswerWithNumbers) {
  const ReportSample sample;
  const ReportArtefacts artefacts = sample.artefacts();
  const auto answers = answers_of(artefacts, measure_step(artefacts));
  ASSERT_EQ(answers.size(), 5U);
  for (const auto& [question, answer] : answers) {
    EXPECT_TRUE(question.ends_with("?"));
    EXPECT_TRUE(answer.ends_with(".")) << answer;
    EXPECT_NE(answer.find_first_of("0123456789"), std::string::npos) << answer;
  }
  EXPECT_NE(answers[0].second.find(" of the step"), std::string::npos);
  EXPECT_NE(answers[1].second.find("Of the tensors, "), std::string::npos);
}

TEST(Answers, TheLayoutsThatMatterMostAreNamed) {
  LayoutReason little;
  little.tensor = "little";
  little.layout = "BJ";
  little.other = "JB";
  little.choice = LayoutChoice::fastest;
  little.seconds = 4;
  little.other_seconds = 5;
  LayoutReason much = little;
  much.tensor = "much";
  much.other_seconds = 7;
  LayoutReason alone = little;
  alone.tensor = "alone";
  alone.other_seconds = kNoTime;
  LayoutReason loser = little;
  loser.tensor = "loser";
  loser.choice = LayoutChoice::for_others;
  loser.other_seconds = 2;
  EXPECT_EQ(
      layouts_that_matter({little, much, alone, loser}),
      " Most is gained by much as BJ: its launches can take 4.00 s, and as JB 7.00 s. Most is given up by loser as "
      "BJ: up to 2.00 s against JB.");
  EXPECT_EQ(layouts_that_matter({alone}), "");
}

// The byte model's times are no measurements: they say neither how far the bound is nor what a launch could gain.
TEST(Answers, EstimatesAreNotGivenAsMeasurements) {
  ReportSample sample;
  for (const PlanLaunch& launch : sample.plan().launches)
    sample.exploration().partitions.push_back({launch.partition, {}});
  const ReportArtefacts artefacts = sample.artefacts();
  const StepMetrics metrics = measure_step(artefacts);
  EXPECT_EQ(estimated_launches(metrics), metrics.after.size());
  EXPECT_EQ(metrics.peaks.bytes_per_second, 0);
  const auto answers = answers_of(artefacts, metrics);
  EXPECT_NE(answers[0].second.find(" takes an estimated "), std::string::npos) << answers[0].second;
  EXPECT_TRUE(answers[3].second.starts_with("Unknown: the times of ")) << answers[3].second;
  EXPECT_EQ(answers[3].second.find("above the lower bound"), std::string::npos) << answers[3].second;
  EXPECT_TRUE(answers[4].second.starts_with("A larger --budget times the ")) << answers[4].second;
}

TEST(Answers, AnEstimateDoesNotHideHowFastTheOthersAre) {
  ReportSample sample;
  sample.plan().launches[0].estimated = true;
  sample.plan().launches[0].predicted_seconds = 1000;
  const ReportArtefacts artefacts = sample.artefacts();
  const std::string distance = answers_of(artefacts, measure_step(artefacts))[3].second;
  EXPECT_NE(distance.find(" % of their time"), std::string::npos) << distance;
  EXPECT_EQ(distance.find(" 0 % of their time"), std::string::npos) << distance;
}

TEST(Answers, ALaunchThatWasTimedAloneIsNoEstimate) {
  ReportSample sample;
  for (const PlanLaunch& launch : sample.plan().launches)
    sample.exploration().partitions.push_back({launch.partition, {{launch.candidate, 1e-6, "measured", ""}}});
  EXPECT_EQ(estimated_launches(measure_step(sample.artefacts())), 0U);
}

}  // namespace
}  // namespace millrace
