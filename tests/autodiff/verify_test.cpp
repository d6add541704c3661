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

void expect_message(const std::string& message, const std::function<void(TrainingGraph&)>& tamper) {
  TrainingGraph training = sample();
  tamper(training);
  const Result<Done> checked = verify(training);
  ASSERT_FALSE(checked) << "accepted: " << message;
  EXPECT_EQ(checked.error().diagnostics.at(0).message, message);
}

TEST(VerifyTraining, AcceptsTheSample) { EXPECT_TRUE(verify(sample())); }

TEST(VerifyTraining, ChecksItsGraphFirst) {
  expect_message("invalid graph: dimension 2 is empty", [](TrainingGraph& t) { t.graph.dims[0].extent = 0; });
}

TEST(VerifyTraining, OneGradientPerResultAndPerArgument) {
  expect_message("invalid training graph: it does not have one gradient per result",
                 [](TrainingGraph& t) { t.result_gradients.clear(); });
  expect_message("invalid training graph: it does not have one gradient per argument",
                 [](TrainingGraph& t) { t.argument_gradients.pop_back(); });
}

TEST(VerifyTraining, GradientsHaveTheShapeOfTheirTensors) {
  expect_message("invalid training graph: the gradient of result result does not have the result's shape",
                 [](TrainingGraph& t) { t.result_gradients[0] = t.argument_gradients[0]; });
  expect_message("invalid training graph: the gradient of x does not have the argument's shape",
                 [](TrainingGraph& t) { t.argument_gradients[0] = t.argument_gradients[1]; });
}

TEST(VerifyTraining, TensorsHaveAGradientAndScalarsHaveNone) {
  expect_message("invalid training graph: w has no gradient",
                 [](TrainingGraph& t) { t.argument_gradients[1] = TensorId(); });
  expect_message("invalid training graph: s has a gradient but must not",
                 [](TrainingGraph& t) { t.argument_gradients[2] = t.argument_gradients[0]; });
  expect_message("invalid training graph: no operator writes the gradient of x",
                 [](TrainingGraph& t) { t.argument_gradients[0] = t.graph.arguments[0]; });
}

TEST(VerifyTraining, ForwardComesBeforeBackward) {
  expect_message("invalid training graph: a forward operator follows a backward operator",
                 [](TrainingGraph& t) { t.graph.operators.back().pass = Pass::forward; });
}

TEST(VerifyTraining, ForwardTensorsThatBackwardReadsAreKept) {
  expect_message("invalid training graph: result is read by backward but not kept",
                 [](TrainingGraph& t) { t.kept.clear(); });
}

}  // namespace
}  // namespace millrace
