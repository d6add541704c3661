// A program whose backward uses signs saved as bits, and tensors whose signs are not obvious.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/run_plan.h"

namespace millrace {

inline constexpr const char* kSigns = R"(
A = 6
B = 40


def signs(x: float32[A, B], shift: float32[B]):
    return dropout(relu(x + shift), p=0.25)
)";

// Every element of `x` is one of these, and the shift is zero.
inline Values<double> values_with_hard_signs(const MadePlan& made) {
  const Graph& graph = made.training.graph;
  Values<double> given = drawn_values(made.training, 1);
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> hard = {std::nan(""), -std::nan(""), 0.0, -0.0, infinity, -infinity, 0x1p-14, -0x1p-14, 1};
  std::vector<double>& x = given[graph.arguments[0].at()];
  for (size_t k = 0; k < x.size(); ++k) x[k] = hard[k * 7 % hard.size()];
  std::vector<double>& shift = given[graph.arguments[1].at()];
  std::fill(shift.begin(), shift.end(), 0.0);
  return given;
}

// The gradient is that of the graph also where x is NaN: there it is zero.
inline void expect_gradient_of_signs(const MadePlan& made, const Values<double>& given, RandomState random,
                                     const Values<double>& found) {
  ASSERT_EQ(made.training.predicates.size(), 1U);
  EXPECT_TRUE(std::any_of(made.plan.buffers.begin(), made.plan.buffers.end(), [](const PlanBuffer& buffer) {
    return buffer.layout == "bits" && buffer.tensor.find("positive") != std::string::npos;
  }));
  const Graph& graph = made.training.graph;
  Values<double> expected = given;
  ASSERT_TRUE(interpret<double>(graph, expected, random));
  const size_t gradient = made.training.argument_gradients[0].at();
  ASSERT_EQ(found[gradient].size(), expected[gradient].size());
  size_t positive = 0;
  for (size_t k = 0; k < found[gradient].size(); ++k) {
    const double x = given[graph.arguments[0].at()][k];
    ASSERT_NEAR(found[gradient][k], expected[gradient][k], 1e-2) << x;
    ASSERT_TRUE(x > 0 || found[gradient][k] == 0) << x;
    positive += found[gradient][k] != 0 ? 1 : 0;
  }
  EXPECT_GT(positive, found[gradient].size() / 8);
}

}  // namespace millrace
