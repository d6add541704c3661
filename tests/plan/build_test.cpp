// Plans as they are built. Whether they compute what they should: tests/exec/cpu_executor_test.cpp.
#include "plan/build.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "fusion/fusion_text.h"
#include "plan/small_plan.h"

namespace millrace {
namespace {

TEST(BuildPlan, TheCallersBuffersComeInItsOrder) {
  std::vector<std::string> locations;
  for (const PlanBuffer& buffer : small_plan().plan.buffers) {
    if (buffer.location != BufferLocation::arena)
      locations.push_back(concat(name_of(buffer.location), " ", buffer.position, " ", buffer.bytes));
  }
  EXPECT_EQ(join(locations, "; "),
            "argument 0 96; argument 1 160; argument 2 40; result 0 120; result_gradient 0 120; "
            "argument_gradient 0 96; argument_gradient 1 160; argument_gradient 2 40");
}

TEST(BuildPlan, ForwardStandsBeforeBackwardAndTimesAddUp) {
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

TEST(BuildPlan, AConversionStandsRightBeforeItsFirstReader) {
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

// Gradients of weights stand right behind what they need; at the end there is nothing that they could be beside.
TEST(BuildPlan, WhatNoLaunchNeedsRunsAside) {
  PlanChoice choice;
  choice.sizes = {"tiny"};
  choice.aside = true;
  const std::string bert = text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/bert_encoder.py"));
  const MadePlan made = make_plan(bert, choice);
  std::vector<std::string> backward;
  for (const PlanLaunch& launch : made.plan.launches) {
    if (launch.pass == Pass::backward) backward.push_back(concat(name_of(launch), launch.aside ? " (aside)" : ""));
    EXPECT_TRUE(launch.pass == Pass::backward || !launch.aside) << name_of(launch);
  }
  EXPECT_EQ(join(backward, "\n"),
            "out layernorm dW (aside)\n"
            "out layernorm d_linear2_residual\n"
            "dropout_dx-bias_dw (d_b2)\n"
            "linear2 einsum d_w2 (aside)\n"
            "linear2 einsum d_hidden\n"
            "dropout_dx-relu_dx-bias_dw (d_b1)\n"
            "linear1 einsum d_w1 (aside)\n"
            "linear1 einsum d_attn_norm\n"
            "residual-layernorm_dw (d_ln1_bias)\n"
            "conversion of attn_residual\n"
            "conversion of d_attn_norm.sum\n"
            "attn_norm layernorm d_attn_residual\n"
            "conversion of d_attn_residual\n"
            "dropout_dx-bias_dw (d_bo)\n"
            "attn einsum d_wo (aside)\n"
            "attn einsum d_gamma\n"
            "gamma einsum d_vv\n"
            "v_projected einsum d_wv (aside)\n"
            "gamma einsum d_alpha\n"
            "softmax-dropout_dx-softmax_dx (d_beta)\n"
            "beta einsum d_kk\n"
            "k_projected einsum d_wk (aside)\n"
            "beta einsum d_qq\n"
            "bias_dw*3 (d_bq) (aside)\n"
            "q_projected einsum d_wq (aside)\n"
            "v_projected einsum d_x\n"
            "k_projected einsum d_x\n"
            "q_projected einsum d_x\n"
            "residual*3 (d_x.sum.3)");
}

TEST(BuildPlan, WhatALaunchAsideTouchesIsAliveUntilItIsWaitedFor) {
  PlanChoice choice;
  choice.sizes = {"P=16", "W=16", "H=4", "B=2", "J=32"};
  const std::string bert = text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/bert_encoder.py"));
  const StepPlan in_a_row = make_plan(bert, choice).plan;
  choice.aside = true;
  const StepPlan plan = make_plan(bert, choice).plan;
  EXPECT_EQ(plan.sum_bytes, in_a_row.sum_bytes);
  EXPECT_GE(plan.scratch_offset, in_a_row.scratch_offset);
  for (size_t k = 0; k < plan.launches.size(); ++k) {
    if (!plan.launches[k].aside) continue;
    const int end = waited_for_before(plan, static_cast<int>(k));
    ASSERT_GT(end, static_cast<int>(k) + 1);
    for (const PlanBuffer& other : plan.buffers) {
      if (other.location != BufferLocation::arena || other.first <= static_cast<int>(k) || other.first >= end) continue;
      for (const int number : plan.launches[k].buffers) {
        if (number == kNoBuffer) continue;
        const PlanBuffer& touched = plan.buffers[static_cast<size_t>(number)];
        const bool apart =
            touched.offset + touched.bytes <= other.offset || other.offset + other.bytes <= touched.offset;
        EXPECT_TRUE(touched.location != BufferLocation::arena || apart) << touched.tensor << " and " << other.tensor;
      }
    }
  }
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
