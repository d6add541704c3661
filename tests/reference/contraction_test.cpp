// Contractions in blocks against the loops of the interpreter.
#include "reference/contraction.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "frontend/frontend.h"
#include "reference/dual.h"
#include "reference/philox.h"

namespace millrace {
namespace {

using Number = Bounded<53>;

Graph parsed(const std::string& text) {
  Result<Graph> graph = parse_program(text, {});
  EXPECT_TRUE(graph) << (graph ? "" : to_string(graph.error()));
  return graph ? *graph : Graph{};
}

// Arguments between -1 and 1, with an error where `error` is not zero.
Values<Number> drawn(const Graph& graph, double error) {
  Values<Number> values(graph.tensors.size());
  for (const TensorId argument : graph.arguments) {
    std::vector<Number>& into = values[argument.at()];
    for (int64_t k = 0; k < elements_of(graph, argument); ++k) {
      const double x = uniform_draw(7, static_cast<uint32_t>(argument.at()), static_cast<uint64_t>(k));
      into.emplace_back(x, error * std::abs(x));
    }
  }
  return values;
}

void expect_the_same(const Number& blocked, const Number& looped) {
  EXPECT_LE(std::abs(blocked.value - looped.value), looped.error);
  EXPECT_NEAR(blocked.error, looped.error, 1e-9 * looped.error);
}

// The values with derivatives, which the interpreter always computes in loops.
Values<Dual<Number>> looped(const Graph& graph, const Values<Number>& given) {
  Values<Dual<Number>> duals(given.size());
  for (size_t k = 0; k < given.size(); ++k) {
    for (const Number& x : given[k]) duals[k].emplace_back(x, Number(0));
  }
  EXPECT_TRUE(interpret(graph, duals, {}));
  return duals;
}

// The program's last operator, a contraction, in blocks and in loops.
void compare(const std::string& text, double error) {
  const Graph graph = parsed(text);
  const Operator& contraction = graph.operators.back();
  const Values<Dual<Number>> expected = looped(graph, drawn(graph, error));
  Values<Number> blocked(expected.size());
  for (size_t k = 0; k < expected.size(); ++k) {
    for (const Dual<Number>& x : expected[k]) blocked[k].push_back(x.value);
  }
  const size_t result = contraction.outputs[0].tensor.at();
  blocked[result].assign(expected[result].size(), Number(std::numeric_limits<double>::quiet_NaN()));
  const BlockedContraction<Number> product(graph, contraction, blocked);
  ASSERT_TRUE(product.is_moderate());
  product.run();
  for (size_t k = 0; k < expected[result].size(); ++k) expect_the_same(blocked[result][k], expected[result][k].value);
}

std::string einsum(const std::string& formula, const std::string& a, const std::string& b) {
  return "def f(a: float64[" + a + "], b: float64[" + b + "]):\n    return np.einsum('" + formula + "', a, b)\n";
}

const char* const kWindows =
    "def f(a: float64[2, 40, 9], b: float64[5, 9, 11]):\n"
    "    w = np.lib.stride_tricks.sliding_window_view(a, 5, axis=1)\n"
    "    return np.einsum('blik,kio->blo', w, b)\n";

TEST(BlockedContractions, BlocksAddWhatLoopsAdd) {
  for (const double error : {0.0, 1e-3}) {
    compare(einsum("ij,jk->ik", "7, 300", "300, 8"), error);      // one row more than a panel
    compare(einsum("ij,jk->ik", "100, 129", "129, 131"), error);  // one more than a block in every direction
    compare(einsum("ji,kj->ki", "9, 17", "19, 9"), error);        // all transposed
    compare(einsum("bhlp,bhmp->bhlm", "2, 3, 10, 8", "2, 3, 12, 8"), error);
    compare(einsum("ij,kl->ik", "7, 9", "8, 10"), error);      // sums of one input alone
    compare(einsum("iij,jk->ik", "7, 7, 9", "9, 10"), error);  // a diagonal
    compare(kWindows, error);
  }
}

TEST(BlockedContractions, AreWhatTheInterpreterUses) {
  const Graph graph =
      parsed("def f(a: float64[65, 3, 30], b: float64[30, 3, 66]):\n    return 0.5 * np.einsum('ipq,qpk->ik', a, b)\n");
  ASSERT_TRUE(is_large_product(graph, graph.operators.back()));
  Values<Number> blocked = drawn(graph, 1e-6);
  const Values<Dual<Number>> expected = looped(graph, blocked);
  ASSERT_TRUE(interpret(graph, blocked, {}));
  const size_t result = graph.operators.back().outputs[0].tensor.at();
  ASSERT_EQ(blocked[result].size(), 65U * 66U);
  for (size_t k = 0; k < blocked[result].size(); ++k) expect_the_same(blocked[result][k], expected[result][k].value);
}

TEST(BlockedContractions, SumsOverSeveralIndices) {
  compare("def f(a: float64[7, 3, 9], b: float64[9, 3, 10]):\n    return np.einsum('ipq,qpk->ik', a, b)\n", 1e-6);
}

const char* const kProduct =
    "def f(a: float64[64, 64], b: float64[64, 64]):\n    return np.einsum('ij,jk->ik', a, b)\n";

// An infinity meets a zero in one row, and numbers in another: not a number, and an infinity.
TEST(BlockedContractions, InfinitiesAreLeftToLoops) {
  const Graph graph = parsed(kProduct);
  ASSERT_TRUE(is_large_product(graph, graph.operators.back()));
  Values<Number> values = drawn(graph, 0);
  std::vector<Number>& a = values[graph.arguments[0].at()];
  std::vector<Number>& b = values[graph.arguments[1].at()];
  a[0] = Number(std::numeric_limits<double>::infinity());
  b[0] = Number(0);
  b[1] = Number(1);
  ASSERT_TRUE(interpret(graph, values, {}));
  const std::vector<Number>& y = values[graph.operators.back().outputs[0].tensor.at()];
  EXPECT_TRUE(std::isnan(y[0].value));
  EXPECT_EQ(y[1].value, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isfinite(y[64].value));
}

// An error without a bound stays without one, and does not spread through zeros.
TEST(BlockedContractions, InfiniteErrorsAreLeftToLoops) {
  const Graph graph = parsed(kProduct);
  ASSERT_TRUE(is_large_product(graph, graph.operators.back()));
  Values<Number> values = drawn(graph, 0);
  values[graph.arguments[0].at()][0] = Number(1, std::numeric_limits<double>::infinity());
  values[graph.arguments[1].at()][0] = Number(0);
  ASSERT_TRUE(interpret(graph, values, {}));
  const std::vector<Number>& y = values[graph.operators.back().outputs[0].tensor.at()];
  EXPECT_TRUE(std::isfinite(y[0].error));
  EXPECT_TRUE(std::isinf(y[1].error));
}

}  // namespace
}  // namespace millrace
