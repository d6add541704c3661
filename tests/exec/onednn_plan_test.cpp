// Plans whose products are by oneDNN: against the reference, through their file, and without the library.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "device/cpu/onednn.h"
#include "exec/run_plan.h"
#include "golden/golden.h"
#include "plan/plan_json.h"
#include "plan/random_plan.h"

namespace millrace {
namespace {

MadePlan plan_by_onednn(const std::string& model, uint64_t seed, const char* dtype) {
  PlanChoice choice;
  choice.seed = seed;
  choice.sizes = {"tiny"};
  choice.dtype = dtype;
  choice.libraries = {GemmLibrary::onednn};
  return make_plan(text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/", model, ".py")), choice);
}

bool uses_onednn(const MadePlan& made) {
  return std::any_of(made.plan.launches.begin(), made.plan.launches.end(),
                     [](const PlanLaunch& launch) { return launch.candidate.find("onednn") != std::string::npos; });
}

void expect_agreement(const std::vector<MadePlan>& plans) {
  std::vector<const MadePlan*> all;
  for (const MadePlan& made : plans) all.push_back(&made);
  compile_kernels(all);
  for (const MadePlan& made : plans) {
    EXPECT_TRUE(uses_onednn(made));
    Result<CpuExecutor> executor = executor_of(made);
    ASSERT_TRUE(executor) << to_string(executor.error());
    const Values<double> given = drawn_values(made.training, 5);
    const RandomState random{5, 3};
    const Values<double> first = run_plan(made, *executor, given, random);
    EXPECT_EQ(difference_from_reference(made, given, random, first), "");
    EXPECT_EQ(run_plan(made, *executor, given, random), first) << "a second run differs";
  }
}

TEST(OneDnnPlans, AgreeWithTheReferenceAndRepeat) {
  if (!onednn_info().there) GTEST_SKIP() << onednn_info().missing;
  std::vector<MadePlan> plans;
  for (uint64_t seed = 0; seed < 2; ++seed) plans.push_back(plan_by_onednn("mha", seed, "float32"));
  expect_agreement(plans);
}

TEST(OneDnnPlans, InBfloat16AgreeWithTheReference) {
  if (!onednn_info().there) GTEST_SKIP() << onednn_info().missing;
  if (onednn_implementation(StoredType::bf16).empty()) GTEST_SKIP() << "no bfloat16 by oneDNN on this processor";
  expect_agreement({plan_by_onednn("mha", 1, "bfloat16")});
}

TEST(OneDnnPlans, ReadWhatTheyWrote) {
  const MadePlan made = plan_by_onednn("mha", 0, "float32");
  ASSERT_TRUE(uses_onednn(made));
  const std::string text = plan_json(made.plan);
  const Result<StepPlan> read = parse_plan(text, "plan.json");
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(plan_json(*read), text);
}

// The test `onednn_missing` hides the library.
TEST(OneDnnPlans, WithoutTheLibrarySayHowToInstallIt) {
  if (onednn_info().there) GTEST_SKIP() << "oneDNN is here: " << onednn_info().path;
  const MadePlan made = plan_by_onednn("mha", 0, "float32");
  ASSERT_TRUE(uses_onednn(made));
  compile_kernels({&made});
  const Result<CpuExecutor> executor = executor_of(made);
  ASSERT_FALSE(executor);
  const std::string message = to_string(executor.error());
  EXPECT_NE(message.find("matrix product by oneDNN: oneDNN is missing"), std::string::npos) << message;
  EXPECT_NE(message.find("apt-get install libdnnl"), std::string::npos) << message;
}

}  // namespace
}  // namespace millrace
