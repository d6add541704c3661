// The structure of built plans. tests/exec/cpu_executor_test.cpp checks what they compute.
#include "plan/build.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "base/text.h"
#include "fusion/fusion_text.h"
#include "plan/small_plan.h"

namespace millrace {
namespace {

TEST(BuildPlan, CallersBuffersAreInTheCallersOrder) {
  std::vector<std::string> locations;
  for (const PlanBuffer& buffer : small_plan().plan.buffers) {
    if (buffer.location != BufferLocation::arena)
      locations.push_back(concat(name_of(buffer.location), " ", buffer.position, " ", buffer.bytes));
  }
  EXPECT_EQ(join(locations, "; "),
            "argument 0 96; argument 1 160; argument 2 40; result 0 120; result_gradient 0 120; "
            "argument_gradient 0 96; argument_gradient 1 160; argument_gradient 2 40");
}

TEST(BuildPlan, ForwardPrecedesBackwardAndTimesAddUp) {
  const StepPlan& plan = small_plan().plan;
  double sum = 0;
  for (size_t k = 0; k < plan.launches.size(); ++k) {
    sum += plan.launches[k].predicted_seconds;
    EXPECT_LE(plan.launches[k == 0 ? 0 : k - 1].pass, plan.launches[k].pass);
  }
  EXPECT_NEAR(plan.cost, sum, 1e-12);
}

TEST(BuildPlan, TheArenaIsSmallerThanItsBuffers) {
  PlanChoice choice;
  choice.sizes = {"P=16", "W=16", "H=4", "B=2", "J=32"};
  const MadePlan made = make_plan(text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/bert_encoder.py")), choice);
  EXPECT_LT(made.plan.scratch_offset, made.plan.sum_bytes);
}

TEST(BuildPlan, AConversionDirectlyPrecedesItsFirstReader) {
  int conversions = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    PlanChoice choice;
    choice.seed = seed;
    const MadePlan made = make_plan(kSmallProgram, choice);
    for (size_t k = 0; k < made.plan.launches.size(); ++k) {
      const PlanLaunch& launch = made.plan.launches[k];
      if (launch.conversion_of.empty()) continue;
      ++conversions;
      const PlanBuffer& to = made.plan.buffers[static_cast<size_t>(launch.buffers[1])];
      size_t next = k + 1;
      while (next < made.plan.launches.size() && !made.plan.launches[next].conversion_of.empty()) ++next;
      ASSERT_LT(next, made.plan.launches.size());
      const std::vector<int>& read = made.plan.launches[next].buffers;
      EXPECT_NE(std::find(read.begin(), read.end(), launch.buffers[1]), read.end()) << to.tensor;
    }
  }
  EXPECT_GT(conversions, 5);
}

// Every conversion of a chain is launched once, after the one before it.
TEST(BuildPlan, LaunchesEveryStepOfAChain) {
  size_t chained = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    PlanChoice choice;
    choice.seed = seed;
    choice.conversions = MadeConversions::chained;
    const MadePlan made = make_plan(kThreeAxesProgram, choice);
    std::set<std::tuple<int, int, int>> steps;
    for (const SelectedConversion& conversion : made.selection.conversions) {
      if (made.measurements.tensors[static_cast<size_t>(conversion.tensor)]
              .layouts[static_cast<size_t>(conversion.to)] == "regenerated")
        continue;
      for (const auto& [from, to] : conversion.chain()) steps.emplace(conversion.tensor, from, to);
      chained += conversion.via.size();
    }
    size_t launched = 0;
    double sum = 0;
    for (const PlanLaunch& launch : made.plan.launches) {
      launched += launch.conversion_of.empty() ? 0U : 1U;
      sum += launch.predicted_seconds;
    }
    EXPECT_EQ(launched, steps.size()) << "seed " << seed;
    EXPECT_NEAR(made.plan.cost, sum, 1e-12) << "seed " << seed;
  }
  EXPECT_GT(chained, 5U);
}

TEST(BuildPlan, LayoutsOfTheCallersChoice) {
  PlanChoice choice;
  choice.layouts = {{"x", "IB"}, {"w", "any"}, {"d_w", "any"}};
  for (uint64_t seed = 0; seed < 10; ++seed) {
    choice.seed = seed;
    const MadePlan made = make_plan(kSmallProgram, choice);
    EXPECT_EQ(made.plan.buffers[0].layout, "IB");
  }
}

}  // namespace
}  // namespace millrace
