#include "reference/draw_rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "autodiff/differentiate.h"
#include "frontend/program_text.h"
#include "reference/interpreter.h"
#include "reference/philox.h"

namespace millrace {
namespace {

// A training graph and its rules, by name.
struct Drawn {
  explicit Drawn(const std::string& text)
      : training(differentiate(graph_of(text))), rules(draw_rules(training.graph)) {}

  const DrawRule& of(const std::string& name) const {
    for (size_t k = 0; k < rules.size(); ++k) {
      if (training.graph.tensors[k].name == name) return rules[k];
    }
    ADD_FAILURE() << "no tensor " << name;
    return rules.front();
  }
  double low(const std::string& name) const { return of(name).middle - of(name).reach; }
  double high(const std::string& name) const { return of(name).middle + of(name).reach; }

  // All tensors, computed from drawn arguments and gradients.
  Values<double> values() const {
    const Graph& graph = training.graph;
    Values<double> made(graph.tensors.size());
    for (size_t k = 0; k < made.size(); ++k) {
      const TensorRole role = graph.tensors[k].role;
      if (role == TensorRole::computed || role == TensorRole::constant) continue;
      for (int64_t e = 0; e < elements_of(graph, TensorId(k)); ++e)
        made[k].push_back(drawn_value(rules[k], uniform_draw(1, static_cast<uint32_t>(k), static_cast<uint64_t>(e))));
    }
    EXPECT_TRUE(interpret(graph, made, {1, 1}));
    return made;
  }
  // "" if all of them are finite and fit their types; else the first that does not.
  std::string first_out_of_range() const {
    const Values<double> made = values();
    for (size_t k = 0; k < made.size(); ++k) {
      const Tensor& tensor = training.graph.tensors[k];
      for (const double x : made[k]) {
        if (!std::isfinite(rounded_to(tensor.dtype, x))) return tensor.name + " has " + std::to_string(x);
      }
    }
    return "";
  }

  TrainingGraph training;
  DrawRules rules;
};

double rms(const std::vector<double>& values) {
  double squares = 0;
  for (const double x : values) squares += x * x;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

const char* const kLayer = R"(
B, L, N, M, H, P = 4, 16, 64, 256, 4, 16
def layer(x: float32[B, L, N], wqkv: float32[3, H, P, N], wo: float32[N, H, P], g: float32[N], b: float32[N],
          w1: float32[M, N], b1: float32[M], w2: float32[N, M], s: float32[N]):
    q, k, v = np.einsum('thpn,bln->tbhlp', wqkv, x)
    p = softmax(np.einsum('bhlp,bhkp->bhlk', q, k) / np.sqrt(P))
    a = x + np.einsum('bhlk,bhkp,nhp->bln', p, v, wo)
    n = layernorm(a, g, b, eps=1e-5)
    h = gelu(np.einsum('bln,mn->blm', n, w1) + b1)
    y = n + np.einsum('blm,nm->bln', h, w2)
    return y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5) * s
)";

TEST(DrawRules, ActivationsHaveSizeOneAndWeightsAreScaledByFanIn) {
  const Drawn drawn(kLayer);
  EXPECT_NEAR(size_of(drawn.of("x")), 1, 1e-9);
  EXPECT_NEAR(size_of(drawn.of("wqkv")), 1 / std::sqrt(64), 1e-9);
  EXPECT_NEAR(size_of(drawn.of("wo")), 1 / std::sqrt(64), 1e-9);
  EXPECT_NEAR(size_of(drawn.of("w1")), 1 / std::sqrt(64), 1e-9);
  EXPECT_NEAR(size_of(drawn.of("w2")), 1 / std::sqrt(256), 1e-9);
  EXPECT_EQ(drawn.of("g").middle, 1);
  EXPECT_EQ(drawn.of("s").middle, 1);
  EXPECT_NEAR(drawn.of("g").reach, 0.17, 0.01);
  EXPECT_NEAR(size_of(drawn.of("b")), 0.1, 1e-9);
  EXPECT_NEAR(size_of(drawn.of("b1")), 0.1, 1e-9);
  for (const TensorId gradient : drawn.training.result_gradients)
    EXPECT_NEAR(size_of(drawn.rules[gradient.at()]), 1, 1e-9);
}

TEST(DrawRules, NothingInALayerSaturatesOrBecomesDenormal) {
  const Drawn drawn(kLayer);
  EXPECT_EQ(drawn.first_out_of_range(), "");
  const Values<double> values = drawn.values();
  for (size_t k = 0; k < values.size(); ++k) {
    if (values[k].size() < 64) continue;
    EXPECT_GT(rms(values[k]), 1e-3) << drawn.training.graph.tensors[k].name;
    EXPECT_LT(rms(values[k]), 300) << drawn.training.graph.tensors[k].name;
  }
}

// A trial draws computed tensors in the range that they have.
TEST(DrawRules, ComputedTensorsHaveTheRangeThatTheyGetFromDrawnArguments) {
  const Drawn drawn(kLayer);
  const Values<double> values = drawn.values();
  for (size_t k = 0; k < values.size(); ++k) {
    const Tensor& tensor = drawn.training.graph.tensors[k];
    if (tensor.role != TensorRole::computed || !is_floating(tensor.dtype) || values[k].size() < 64) continue;
    EXPECT_GT(size_of(drawn.rules[k]), rms(values[k]) / 8) << tensor.name;
    EXPECT_LT(size_of(drawn.rules[k]), rms(values[k]) * 8) << tensor.name;
  }
  EXPECT_GT(drawn.low("p"), 0);
}

TEST(DrawRules, SingleHeadAttentionAveragesItsValues) {
  const Drawn drawn(R"(
L, K, D = 32, 48, 16
def f(q: float32[L, D], k: float32[K, D], v: float32[K, D]):
    return softmax(q @ k.T) @ v
)");
  EXPECT_NEAR(size_of(drawn.of("v")), 1, 1e-9);
}

TEST(DrawRules, ConvolutionWeightsCountAllProductsOfASum) {
  const Drawn drawn(R"(
B, N, C, M = 4, 32, 8, 24
def f(x: float32[B, N, C], w: float32[M, 3, C]):
    windows = np.stack([x[:, 0:30], x[:, 1:31], x[:, 2:32]], axis=2)
    return np.einsum('bntc,mtc->bnm', windows, w)
)");
  EXPECT_NEAR(size_of(drawn.of("w")), 1 / std::sqrt(24), 1e-9);
  EXPECT_NEAR(size_of(drawn.of("x")), 1, 1e-9);
}

struct Domain {
  const char* name;
  const char* expression;
};

class DrawRulesDomain : public testing::TestWithParam<Domain> {};

TEST_P(DrawRulesDomain, IsWhereEveryOperatorIsFinite) {
  for (const char* const type : {"float16", "bfloat16", "float32", "float64"}) {
    const Drawn drawn("B, N = 8, 16\ndef f(x: " + std::string(type) + "[B, N], y: " + type + "[B, N], w: " + type +
                      "[N, N]):\n    return " + GetParam().expression + "\n");
    EXPECT_EQ(drawn.first_out_of_range(), "") << type;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Programs, DrawRulesDomain,
    testing::Values(Domain{"log", "np.log(x)"}, Domain{"power", "x ** -0.5"}, Domain{"root", "np.sqrt(x)"},
                    Domain{"log_in_softmax", "softmax(x + np.log(y))"}, Domain{"exp", "np.exp(200 * x)"},
                    Domain{"divisor", "x / y"}, Domain{"difference", "x / (1 - y)"}, Domain{"negated", "np.log(-x)"},
                    Domain{"log_of_difference", "np.log(x - y)"}, Domain{"log_of_product", "np.log(x @ w)"},
                    Domain{"log_of_sum", "np.log(x.sum(-1))"}, Domain{"log_of_mean", "np.log(np.abs(x).mean(-1) - 2)"},
                    Domain{"exp_of_product", "np.exp(9 * (x @ w))"}, Domain{"log1p", "np.log1p(3 * x)"},
                    Domain{"entropy", "-(softmax(x) * np.log(softmax(x))).sum(-1)"},
                    Domain{"nested", "np.log(np.sqrt(relu(x) * y) + 1) / np.tanh(y)"},
                    Domain{"normalized",
                           "(x - x.mean(-1, keepdims=True)) / np.sqrt(((x - x.mean(-1, keepdims=True)) "
                           "** 2).mean(-1, keepdims=True))"}),
    [](const testing::TestParamInfo<Domain>& tested) { return tested.param.name; });

TEST(DrawRules, DrawnValuesAreOfTheTensorsType) {
  const DrawRule numbers{DType::float32, 0, 1, 0.5};
  const DrawRule integers{DType::int64, 10, 0, 1};
  const DrawRule booleans{DType::boolean, 0, 0, 1};
  EXPECT_EQ(drawn_value(numbers, -0.25), 0.875);
  EXPECT_EQ(drawn_value(booleans, -0.25), 0);
  EXPECT_EQ(drawn_value(booleans, 0.25), 1);
  EXPECT_EQ(drawn_value(integers, -1), 0);
  EXPECT_EQ(drawn_value(integers, 0), 5);
  EXPECT_EQ(drawn_value(integers, std::nextafter(1.0, 0.0)), 9);
}

}  // namespace
}  // namespace millrace
