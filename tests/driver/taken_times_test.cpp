#include "driver/taken_times.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/temporary_directory.h"
#include "base/text.h"

namespace millrace {
namespace {

class TakenTimesTest : public testing::Test {
 protected:
  TakenTimesTest() : folder_(std::move(*TemporaryDirectory::make("/tmp"))) {
    PlanLaunch launch;
    launch.partition = "product";
    plan_.date = "today";
    plan_.launches = {launch};
  }

  void write(const char* name, const std::string& text) {
    ASSERT_TRUE(write_file(concat(folder_.path(), "/", name), text));
  }
  Result<TakenTimes> taken() const { return taken_times(plan_, folder_.path()); }

  TemporaryDirectory folder_;
  StepPlan plan_;
};

TEST_F(TakenTimesTest, NoFilesAreNoError) {
  const Result<TakenTimes> taken = this->taken();
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->step_seconds, 0);
  EXPECT_TRUE(taken->launch_seconds.empty() && taken->launch_bytes.empty() && taken->left_out.empty());
}

TEST_F(TakenTimesTest, ReadsTheStepThatOptimizeMeasured) {
  write(kTimesFile, step_times_json(plan_, 2, 1, 3));
  EXPECT_EQ(taken()->step_seconds, 2);
  EXPECT_EQ(taken_times(plan_, folder_.path() + "/plan.json")->step_seconds, 2);
  plan_.date = "tomorrow";
  EXPECT_EQ(taken()->step_seconds, 0) << "it was measured of another plan";
  EXPECT_EQ(taken()->left_out.size(), 1U);
}

TEST_F(TakenTimesTest, ReadsLaunchesOfThisPlanOnly) {
  write(kTimesFile,
        R"({"step_seconds": {"median": 4}, "launches": [{"name": "product", "pass": "forward", "seconds": 3}]})");
  EXPECT_EQ(taken()->launch_seconds, std::vector<double>{3});
  plan_.launches[0].partition = "other";
  EXPECT_TRUE(taken()->launch_seconds.empty());
  EXPECT_EQ(taken()->step_seconds, 0);
  EXPECT_NE(taken()->left_out.at(0).find("millrace bench"), std::string::npos);
}

TEST_F(TakenTimesTest, ReadsCountedBytes) {
  const std::string launches = R"([{"launch": "product", "pass": "forward", "moved_bytes": 64}])";
  write(kCountedFile, concat(R"({"runs": {"a": {"bytes_are": "measured", "launches": )", launches, "}}}"));
  EXPECT_EQ(taken()->launch_bytes, std::vector<double>{64});
  write(kCountedFile, concat(R"({"runs": {"a": {"bytes_are": "assumed", "launches": )", launches, "}}}"));
  EXPECT_TRUE(taken()->launch_bytes.empty()) << "nobody counted them";
  EXPECT_EQ(taken()->left_out.size(), 1U);
}

TEST_F(TakenTimesTest, ReadsHowTheSearchWentOn) {
  write(kSearchFile, search_json(plan_, {{1, 10, 4, 3}, {2, 20, 3.5, 3}}));
  ASSERT_EQ(taken()->search.size(), 2U);
  EXPECT_EQ(taken()->search[1].seconds, 2);
  EXPECT_EQ(taken()->search[1].tried, 20);
  EXPECT_EQ(taken()->search[1].step, 3.5);
  EXPECT_EQ(taken()->search[1].bound, 3);
  plan_.date = "tomorrow";
  EXPECT_TRUE(taken()->search.empty()) << "it found another plan";
  write(kSearchFile, R"({"plan_date": "tomorrow", "over_time": 3})");
  EXPECT_FALSE(taken());
}

TEST_F(TakenTimesTest, DamagedFilesAreErrorsWithARemedy) {
  for (const char* text :
       {"", "{", "[]", "{\"launches\": 3}", "{\"step_seconds\": 1, \"launches\": []}", "{\"launches\": [{}]}"}) {
    write(kTimesFile, text);
    const Result<TakenTimes> taken = this->taken();
    ASSERT_FALSE(taken) << text;
    EXPECT_EQ(taken.error().kind, ErrorKind::bad_input);
    EXPECT_NE(taken.error().diagnostics[0].remedy.find("remove it"), std::string::npos);
  }
}

}  // namespace
}  // namespace millrace
