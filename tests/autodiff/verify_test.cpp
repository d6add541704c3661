// Every rule of a training graph, broken once.
#include "autodiff/verify.h"

#include <gtest/gtest.h>

#include <functional>

#include "autodiff/backward_text.h"

namespace millrace {
namespace {

TrainingGraph sample() {
  return training_of(R"(
def f(x: float32[2, 3], w: float32[3, 4], s: float32):
    y = s * np.einsum("ij,jk->ik", x, w)
    return np.exp(y)
)");
}

void expect_complaint(const std::string& complaint, const std::function<void(TrainingGraph&)>& tamper) {
  TrainingGraph training = sample();
  tamper(training);
  const Result<Done> checked = verify(training);
  ASSERT_FALSE(checked) << "nobody noticed: " << complaint;
  EXPECT_EQ(checked.error().diagnostics.at(0).message, complaint);
}

TEST(VerifyTraining, TakesTheSample) { EXPECT_TRUE(verify(sample())); }

TEST(VerifyTraining, ItsGraphMustHoldTogetherFirst) {
  expect_complaint("invalid graph: dimension 2 is empty", [](TrainingGraph& t) { t.graph.dims[0].extent = 0; });
}

TEST(VerifyTraining, OneGradientAResultAndAnArgument) {
  expect_complaint("invalid training graph: one gradient a result",
                   [](TrainingGraph& t) { t.result_gradients.clear(); });
  expect_complaint("invalid training graph: one gradient an argument",
                   [](TrainingGraph& t) { t.argument_gradients.pop_back(); });
}

TEST(VerifyTraining, GradientsHaveTheShapeOfWhatTheyBelongTo) {
  expect_complaint("invalid training graph: gradient of result result has another shape",
                   [](TrainingGraph& t) { t.result_gradients[0] = t.argument_gradients[0]; });
  expect_complaint("invalid training graph: the gradient of x has another shape",
                   [](TrainingGraph& t) { t.argument_gradients[0] = t.argument_gradients[1]; });
}

TEST(VerifyTraining, TensorsHaveAGradientAndScalarsHaveNone) {
  expect_complaint("invalid training graph: a gradient for w",
                   [](TrainingGraph& t) { t.argument_gradients[1] = TensorId(); });
  expect_complaint("invalid training graph: a gradient for s",
                   [](TrainingGraph& t) { t.argument_gradients[2] = t.argument_gradients[0]; });
  expect_complaint("invalid training graph: no operator writes the gradient of x",
                   [](TrainingGraph& t) { t.argument_gradients[0] = t.graph.arguments[0]; });
}

TEST(VerifyTraining, ForwardStandsBeforeBackward) {
  expect_complaint("invalid training graph: a forward operator stands behind a backward one",
                   [](TrainingGraph& t) { t.graph.operators.back().pass = Pass::forward; });
}

TEST(VerifyTraining, WhatBackwardReadsOfForwardIsKept) {
  expect_complaint("invalid training graph: result is read by backward but not kept",
                   [](TrainingGraph& t) { t.kept.clear(); });
}

}  // namespace
}  // namespace millrace
