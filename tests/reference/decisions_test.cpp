// Programs that decide something, as text, and inputs for which they do it clearly or not.
#include "reference/decisions.h"

#include <gtest/gtest.h>

#include "autodiff/backward_text.h"

namespace millrace {
namespace {

// With x, y: float16[4] in and a gradient of ones; `shift` is how far what is rounded is off in y.
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
  for (double& of : rounded[graph.arguments[1].at()]) of += of == 0 ? 0 : shift;
  EXPECT_TRUE(interpret(graph, exact, {}));
  EXPECT_TRUE(interpret(graph, rounded, {}));
  const Result<bool> clear = Decisions(graph).are_clear(exact, rounded);
  EXPECT_TRUE(clear);
  return clear && *clear;
}

const std::vector<double> kX = {1, 2, 3, 4};

TEST(Decisions, AreClearWhereNothingIsDecided) {
  EXPECT_TRUE(are_clear("np.exp(x) * y", kX, {1e-6, 0, 1e-6, 0}, 1e-3));
}

TEST(Decisions, AReLUsSide) {
  EXPECT_TRUE(are_clear("relu(x * y)", kX, {1, -1, 2, -2}, 1e-3));
  EXPECT_FALSE(are_clear("relu(x * y)", kX, {1, -1, 2, 1e-3}, 1e-3)) << "4e-3, where all may be off by 4e-3";
  EXPECT_FALSE(are_clear("relu(x * y)", kX, {1, -1, 2, -2e-3}, 1e-3)) << "twice as far off as what is rounded";
  EXPECT_TRUE(are_clear("relu(x * y)", kX, {1, -1, 2, 0}, 1e-3)) << "0 whoever computes it";
}

TEST(Decisions, AMagnitudesSide) {
  EXPECT_TRUE(are_clear("np.abs(x * y)", kX, {1, -1, 2, -2}, 1e-3));
  EXPECT_FALSE(are_clear("np.abs(x * y)", kX, {1, -1, 2, 1e-3}, 1e-3));
}

TEST(Decisions, TheLargerOfTwo) {
  for (const char* const of : {"np.maximum(x, y)", "np.minimum(x, y)", "np.where(x < y, x, y * y)"}) {
    EXPECT_TRUE(are_clear(of, kX, {2, 1, 4, 3}, 1e-3)) << of;
    EXPECT_FALSE(are_clear(of, kX, {2, 1, 4, 4.001}, 1e-3)) << of;
  }
}

TEST(Decisions, TheLargestOfAll) {
  for (const char* const of : {"np.max(x * y, axis=0)", "np.min(x * y, axis=0)"}) {
    EXPECT_TRUE(are_clear(of, {1, 1, 1, 1}, {1, 5, 9, 7}, 1e-3)) << of;
    EXPECT_FALSE(are_clear(of, {1, 2, 2, 1}, {9.001, 4.5, 0.5, 1}, 1e-3)) << of << ": two that are nearly so";
  }
}

// Two that are as large for whoever computes them share a gradient, and nobody decides.
TEST(Decisions, TwoThatAreTheLargestForAll) {
  EXPECT_TRUE(are_clear("np.max(x * y, axis=0)", {1, 1, 1, 1}, {9, 9, 1, 2}, 1e-3));
}

}  // namespace
}  // namespace millrace
