// Gradients at ties and kinks are PyTorch's (docs/language.md, "Gradients at ties"), by autodiff and by the
// forward-mode derivatives of the reference. tests/torch/functions_test.py compares plans with PyTorch itself.
#include <gtest/gtest.h>

#include "autodiff/differentiate.h"
#include "frontend/program_text.h"
#include "reference/bounded.h"
#include "reference/dual.h"
#include "reference/interpreter.h"

namespace millrace {
namespace {

using Numbers = std::vector<double>;
using Tangent = Dual<Bounded<53>>;

const Numbers kX = {-1, 0, 1, 2};
const Numbers kY = {-1, 1, 1, 0};

Graph program(std::string_view result) {
  return graph_of(concat("def f(x: float64[4], y: float64[4], s: float64):\n    return ", result, "\n"));
}

// d Σ result / d argument, by the backward graph.
Numbers gradient(const Graph& forward, size_t argument) {
  const TrainingGraph training = differentiate(forward);
  Values<double> values(training.graph.tensors.size());
  values[training.graph.arguments[0].at()] = kX;
  values[training.graph.arguments[1].at()] = kY;
  values[training.graph.arguments[2].at()] = {1};
  const TensorId given = training.result_gradients[0];
  size_t elements = 1;
  for (const DimId dim : training.graph.tensor(given).dims) elements *= static_cast<size_t>(training.graph.extent(dim));
  values[given.at()].assign(elements, 1.0);
  EXPECT_TRUE(interpret(training.graph, values, {}));
  return values[training.argument_gradients[argument].at()];
}

// The same, by one forward-mode derivative for each element.
Numbers forward_mode(const Graph& graph, size_t argument) {
  Numbers found;
  for (size_t element = 0; element < kX.size(); ++element) {
    Values<Tangent> values(graph.tensors.size());
    for (const double x : kX) values[graph.arguments[0].at()].emplace_back(x);
    for (const double y : kY) values[graph.arguments[1].at()].emplace_back(y);
    values[graph.arguments[2].at()].emplace_back(1);
    values[graph.arguments[argument].at()][element].tangent = 1;
    EXPECT_TRUE(interpret(graph, values, {}));
    double total = 0;
    for (const Tangent& y : values[graph.results[0].tensor.at()]) total += value_of(y.tangent);
    found.push_back(total);
  }
  return found;
}

void expect_gradient(std::string_view result, const Numbers& of_x, const Numbers& of_y = {0, 0, 0, 0}) {
  const Graph graph = program(result);
  EXPECT_EQ(gradient(graph, 0), of_x) << result;
  EXPECT_EQ(gradient(graph, 1), of_y) << result;
  EXPECT_EQ(forward_mode(graph, 0), of_x) << result;
  EXPECT_EQ(forward_mode(graph, 1), of_y) << result;
}

TEST(Ties, TwoTensorsShareTheGradient) {
  expect_gradient("np.maximum(x, y)", {0.5, 0, 0.5, 1}, {0.5, 1, 0.5, 0});
  expect_gradient("np.minimum(x, y)", {0.5, 1, 0.5, 0}, {0.5, 0, 0.5, 1});
  expect_gradient("np.maximum(x, x)", {1, 1, 1, 1});
  expect_gradient("np.clip(x, y, 3)", {0.5, 0, 0.5, 1}, {0.5, 1, 0.5, 0});
}

TEST(Ties, ATensorThatEqualsANumberHasNoGradient) {
  expect_gradient("relu(x)", {0, 0, 1, 1});
  expect_gradient("np.maximum(x, 0)", {0, 0, 1, 1});
  expect_gradient("np.maximum(0, x)", {0, 0, 1, 1});
  expect_gradient("np.minimum(x, 1)", {1, 1, 0, 0});
  expect_gradient("np.minimum(s, x)", {1, 1, 0, 0});
  expect_gradient("np.clip(x, 0, 1)", {0, 0, 0, 0});
  expect_gradient("np.clip(x, -2, 2)", {1, 1, 1, 0});
}

TEST(Ties, MagnitudesAndSignsAtZero) {
  expect_gradient("np.abs(x)", {-1, 0, 1, 1});
  expect_gradient("np.linalg.norm(x, 1)", {-1, 0, 1, 1});
  expect_gradient("np.sign(x) + x", {1, 1, 1, 1});
}

TEST(Ties, ElementsEqualToAnExtremumShareTheGradient) {
  expect_gradient("np.max(y)", {0, 0, 0, 0}, {0, 0.5, 0.5, 0});
  expect_gradient("np.min(np.abs(y))", {0, 0, 0, 0}, {0, 0, 0, 0});
  expect_gradient("np.max(np.stack([x, y, y]), axis=0)", {1.0 / 3, 0, 1.0 / 3, 1}, {2.0 / 3, 1, 2.0 / 3, 0});
}

}  // namespace
}  // namespace millrace
