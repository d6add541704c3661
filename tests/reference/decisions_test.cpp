// Programs with decisions, and inputs for which these are clear or not.
#include "reference/decisions.h"

#include <gtest/gtest.h>

#include "autodiff/backward_text.h"

namespace millrace {
namespace {

// For arguments x, y: float16[4] and a gradient of ones; `shift` is the error of the rounded y.
bool are_clear(const std::string& expression, std::vector<double> x, std::vector<double> y, double shift) {
  const TrainingGraph training =
      training_of(concat("import numpy as np\nfrom millrace.numpy import dropout, float16, relu\nN = 4\n\n\n",
                         "def f(x: float16[N], y: float16[N]):\n    return ", expression, "\n"));
  const Graph& graph = training.graph;
  Values<double> exact(graph.tensors.size());
  exact[graph.arguments[0].at()] = std::move(x);
  exact[graph.arguments[1].at()] = y;
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    if (graph.tensors[k].role == TensorRole::result_gradient)
      exact[k].assign(static_cast<size_t>(elements_of(graph, TensorId(k))), 1.0);
  }
  Values<double> rounded = exact;
  for (double& element : rounded[graph.arguments[1].at()]) element += element == 0 ? 0 : shift;
  EXPECT_TRUE(interpret(graph, exact, {}));
  EXPECT_TRUE(interpret(graph, rounded, {}));
  const Result<bool> clear = Decisions(graph).are_clear(exact, rounded);
  EXPECT_TRUE(clear);
  return clear && *clear;
}

const std::vector<double> kX = {1, 2, 3, 4};

TEST(Decisions, AreClearIfThereAreNone) { EXPECT_TRUE(are_clear("np.exp(x) * y", kX, {1e-6, 0, 1e-6, 0}, 1e-3)); }

TEST(Decisions, AReLUsSide) {
  EXPECT_TRUE(are_clear("relu(x * y)", kX, {1, -1, 2, -2}, 1e-3));
  EXPECT_FALSE(are_clear("relu(x * y)", kX, {1, -1, 2, 1e-3}, 1e-3)) << "4e-3, where all may be off by 4e-3";
  EXPECT_FALSE(are_clear("relu(x * y)", kX, {1, -1, 2, -2e-3}, 1e-3)) << "twice as far off as what is rounded";
  EXPECT_TRUE(are_clear("relu(x * y)", kX, {1, -1, 2, 0}, 1e-3)) << "0 whoever computes it";
}

TEST(Decisions, ASignsSide) {
  EXPECT_TRUE(are_clear("np.sign(x * y)", kX, {1, -1, 2, -2}, 1e-3));
  EXPECT_FALSE(are_clear("np.sign(x * y)", kX, {1, -1, 2, 1e-3}, 1e-3));
}

TEST(Decisions, AMagnitudesSide) {
  EXPECT_TRUE(are_clear("np.abs(x * y)", kX, {1, -1, 2, -2}, 1e-3));
  EXPECT_FALSE(are_clear("np.abs(x * y)", kX, {1, -1, 2, 1e-3}, 1e-3));
}

TEST(Decisions, TheLargerOfTwo) {
  for (const char* const text : {"np.maximum(x, y)", "np.minimum(x, y)", "np.where(x < y, x, y * y)"}) {
    EXPECT_TRUE(are_clear(text, kX, {2, 1, 4, 3}, 1e-3)) << text;
    EXPECT_FALSE(are_clear(text, kX, {2, 1, 4, 4.001}, 1e-3)) << text;
  }
}

TEST(Decisions, TheLargestOfAll) {
  for (const char* const text : {"np.max(x * y, axis=0)", "np.min(x * y, axis=0)"}) {
    EXPECT_TRUE(are_clear(text, {1, 1, 1, 1}, {1, 5, 9, 7}, 1e-3)) << text;
    EXPECT_FALSE(are_clear(text, {1, 2, 2, 1}, {9.001, 4.5, 0.5, 1}, 1e-3)) << text << ": two are nearly equal";
  }
}

// Two elements that are equal in every computation share the gradient, and there is no decision.
TEST(Decisions, TwoEqualMaxima) { EXPECT_TRUE(are_clear("np.max(x * y, axis=0)", {1, 1, 1, 1}, {9, 9, 1, 2}, 1e-3)); }

}  // namespace
}  // namespace millrace
