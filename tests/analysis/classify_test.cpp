// The class of each operator: that of its kind, except a dropout that belongs to a softmax (the paper's "scaled
// softmax").
#include <gtest/gtest.h>

#include "analysis/analyze.h"
#include "autodiff/backward_text.h"

namespace millrace {
namespace {

std::string classes_of(std::string_view text) {
  const TrainingGraph training = training_of(text);
  const std::vector<OperatorClass> classes = classify(training.graph);
  std::string lines;
  for (size_t k = 0; k < classes.size(); ++k)
    lines += concat(training.graph.operators[k].name, ": ", name_of(classes[k]), "\n");
  return lines;
}

TEST(Classify, ADropoutOfASoftmaxBelongsToIt) {
  EXPECT_EQ(classes_of("def f(x: float32[2, 3]):\n    w = softmax(x)\n    y = dropout(w)\n    return y\n"),
            "w softmax: normalization\n"
            "y dropout: normalization\n"
            "y dropout d_w: normalization\n"
            "w softmax d_x: normalization\n");
}

TEST(Classify, ADropoutOfAnythingElseDoesNot) {
  EXPECT_EQ(classes_of(R"(
def f(x: float32[2, 3], w: float32[3]):
    a = dropout(x)
    b = dropout(rmsnorm(a, w))
    return b
)"),
            "a dropout: elementwise\n"
            "b rmsnorm: normalization\n"
            "b dropout: elementwise\n"
            "b dropout d_b.1: elementwise\n"
            "b rmsnorm dW: normalization\n"
            "b rmsnorm d_a: normalization\n"
            "a dropout d_x: elementwise\n");
}

TEST(Classify, NorDoesADropoutThatIsNotTheOnlyReader) {
  const std::string classes = classes_of(R"(
def f(x: float32[2, 3]):
    w = softmax(x)
    y = dropout(w)
    return y + w
)");
  EXPECT_NE(classes.find("y dropout: elementwise\n"), std::string::npos) << classes;
  EXPECT_NE(classes.find("y dropout d_w: elementwise\n"), std::string::npos) << classes;
}

TEST(Classify, ABiasGradientIsANormalization) {
  EXPECT_EQ(classes_of(R"(
def f(x: float32[2, 3], w: float32[3, 4], b: float32[4]):
    return np.einsum("ij,jk->ik", x, w) + b
)"),
            "result einsum: contraction\n"
            "result bias: elementwise\n"
            "result bias d_b: normalization\n"
            "result einsum d_x: contraction\n"
            "result einsum d_w: contraction\n");
}

}  // namespace
}  // namespace millrace
