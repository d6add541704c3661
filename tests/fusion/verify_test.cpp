// Alternatives that name wrong operators are invalid.
#include "fusion/verify.h"

#include <gtest/gtest.h>

#include "fusion/fusion_text.h"

namespace millrace {
namespace {

// The message after a change, or nothing.
template <class Change>
std::string complaint(const std::string& model, Change change) {
  const TrainingGraph training = training_of_model(model, {"tiny"});
  FusedGraph fused = fuse(training);
  change(training, fused);
  const Result<Done> checked = verify(training, fused);
  return checked ? std::string() : checked.error().diagnostics.front().message;
}

OperatorId after(OperatorId op) { return OperatorId(op.at() + 1); }

TEST(VerifyAlternatives, AcceptsWhatFusionFinds) {
  for (const std::string& model : all_models())
    EXPECT_EQ(complaint(model, [](const TrainingGraph&, FusedGraph&) {}), "") << model;
}

TEST(VerifyAlternatives, OfStackings) {
  const auto change = [](const TrainingGraph& training, FusedGraph& fused) {
    ASSERT_FALSE(fused.stackings.empty());
    fused.stackings.front().contractions.front() = operator_called(training, "weights softmax");
  };
  EXPECT_EQ(complaint("bert_encoder", change),
            "invalid fused graph: a stacking has an operator that is no contraction");
}

TEST(VerifyAlternatives, OfEpilogues) {
  const auto change = [](const TrainingGraph& training, FusedGraph& fused) {
    ASSERT_FALSE(fused.epilogues.empty());
    fused.epilogues.front().contraction = OperatorId(training.graph.operators.size());
  };
  EXPECT_EQ(complaint("mha", change), "invalid fused graph: an epilogue is of an operator that is no contraction");
}

TEST(VerifyAlternatives, OfJoinedStacks) {
  const auto of_reader = [](const TrainingGraph&, FusedGraph& fused) {
    ASSERT_FALSE(fused.joined_stacks.empty());
    JoinedStack& stack = fused.joined_stacks.front();
    stack.readers.front() = stack.operators.back();
  };
  EXPECT_EQ(complaint("gpt2_block", of_reader),
            "invalid fused graph: an operator that is no contraction reads a stack");
  const auto of_join = [](const TrainingGraph&, FusedGraph& fused) {
    ASSERT_FALSE(fused.joined_stacks.empty());
    OperatorId& join = fused.joined_stacks.front().operators.back();
    join = after(join);
  };
  EXPECT_EQ(complaint("gpt2_block", of_join), "invalid fused graph: a stack is made of operators that are no join");
}

}  // namespace
}  // namespace millrace
