// Whole training steps by plans, against the reference.
#include "exec/cpu_executor.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "exec/run_plan.h"
#include "fusion/fusion_text.h"
#include "golden/golden.h"
#include "random/generator.h"

namespace millrace {
namespace {

std::string model_text(const std::string& model) {
  return text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/", model, ".py"));
}

void expect_agreement(const MadePlan& made, uint64_t seed, const std::string& what) {
  Result<CpuExecutor> executor = executor_of(made);
  ASSERT_TRUE(executor) << what << to_string(executor.error());
  const Values<double> given = drawn_values(made.training, seed);
  const RandomState random{seed, 3};
  EXPECT_EQ(difference_from_reference(made, given, random, run_plan(made, *executor, given, random)), "") << what;
  EXPECT_LE(made.plan.arena_bytes - made.plan.scratch_bytes,
            made.plan.sum_bytes + kArenaAlignment * static_cast<int64_t>(made.plan.buffers.size()));
}

void expect_all_to_agree(const std::vector<std::pair<std::string, PlanChoice>>& cases) {
  std::vector<MadePlan> plans;
  plans.reserve(cases.size());
  for (const auto& [text, choice] : cases) plans.push_back(make_plan(text, choice));
  ASSERT_FALSE(testing::Test::HasFailure());
  std::vector<const MadePlan*> all;
  for (const MadePlan& made : plans) all.push_back(&made);
  compile_kernels(all);
  ASSERT_FALSE(testing::Test::HasFailure());
  for (size_t k = 0; k < plans.size(); ++k)
    expect_agreement(plans[k], k + 1, concat("case ", k, " seed ", cases[k].second.seed.value_or(0), "\n"));
}

TEST(CpuExecutor, ModelsAgreeWithTheReference) {
  std::vector<std::pair<std::string, PlanChoice>> cases;
  for (const std::string& model : models()) {
    for (const char* size : {"odd", "tiny"}) {
      if (model == "llama_block" && size == std::string("tiny")) continue;  // six axes: long to enumerate
      for (const char* dtype : {"float64", "float32"}) {
        PlanChoice choice;
        choice.sizes = {size};
        choice.dtype = dtype;
        cases.emplace_back(model_text(model), choice);
        choice.seed = cases.size();
        cases.emplace_back(model_text(model), choice);
      }
    }
  }
  expect_all_to_agree(cases);
}

TEST(CpuExecutor, RandomPlansOfRandomProgramsAgreeWithTheReference) {
  const char* const count = std::getenv("MILLRACE_RANDOM_PLANS");
  std::vector<std::pair<std::string, PlanChoice>> cases;
  for (uint64_t seed = 0; seed < (count == nullptr ? 60 : std::stoull(count)); ++seed) {
    PlanChoice choice;
    choice.seed = seed;
    choice.dtype = "float64";
    choice.most = 50;
    cases.emplace_back(random_programs::random_program(seed), choice);
  }
  expect_all_to_agree(cases);
}

}  // namespace
}  // namespace millrace
