// Over 500 lines: a few cases of every operator.
#include "reference/interpreter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "reference/bounded.h"
#include "reference/dual.h"
#include "reference/philox.h"

namespace millrace {
namespace {

using Numbers = std::vector<double>;
using Tangent = Dual<Bounded<53>>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A graph of one operator, built from accesses: each axis has the extent of its index; a kFixed axis has extent one.
struct OneOperator {
  Graph graph;
  Values<double> values;

  OneOperator(OperatorKind kind, const std::vector<int64_t>& extents, const std::vector<bool>& reduced) {
    graph.name = "one";
    graph.dims.push_back({"one", 1});
    Operator op;
    op.name = "op";
    op.kind = kind;
    op.reduced = reduced;
    for (const int64_t extent : extents) {
      op.space.emplace_back(graph.dims.size());
      graph.dims.push_back({"d" + std::to_string(graph.dims.size()), extent});
    }
    graph.operators.push_back(op);
  }

  Operator& op() { return graph.operators.front(); }

  Access access(const std::vector<int>& axes, TensorRole role) {
    Tensor tensor;
    tensor.name = "t" + std::to_string(graph.tensors.size());
    tensor.role = role;
    for (const int axis : axes) {
      tensor.dims.push_back(axis == kFixed ? DimId(size_t{0}) : op().space[static_cast<size_t>(axis)]);
    }
    graph.tensors.push_back(tensor);
    values.emplace_back();
    return {TensorId(graph.tensors.size() - 1), {axes.begin(), axes.end()}};
  }

  OneOperator& in(const std::vector<int>& axes, const Numbers& numbers) {
    op().inputs.push_back(access(axes, TensorRole::argument));
    values.back() = numbers;
    return *this;
  }

  OneOperator& out(const std::vector<int>& axes) {
    op().outputs.push_back(access(axes, TensorRole::computed));
    return *this;
  }

  OneOperator& value(double number) {
    op().value = number;
    return *this;
  }

  const Numbers& run(const RandomState& random = {}) {
    const Result<Done> done = interpret(graph, values, random);
    EXPECT_TRUE(done) << (done ? "" : to_string(done.error()));
    return output(0);
  }

  const Numbers& output(size_t k) { return values[op().outputs[k].tensor.at()]; }

  // Σ g · dy/dx for each element of input `k`, computed by one run with Duals per element.
  Numbers derivative(size_t k, const Numbers& g) {
    Numbers gradient;
    for (size_t element = 0; element < values[op().inputs[k].tensor.at()].size(); ++element) {
      Values<Tangent> duals(values.size());
      for (const Access& input : op().inputs) {
        for (const double x : values[input.tensor.at()]) duals[input.tensor.at()].emplace_back(x);
      }
      duals[op().inputs[k].tensor.at()][element].tangent = Bounded<53>(1);
      EXPECT_TRUE(interpret(graph, duals, {}));
      const std::vector<Tangent>& y = duals[op().outputs[0].tensor.at()];
      double sum = 0;
      for (size_t j = 0; j < y.size(); ++j) sum += g[j] * y[j].tangent.value;
      gradient.push_back(sum);
    }
    return gradient;
  }
};

void expect_near(const Numbers& actual, const Numbers& expected, double tolerance = 1e-12) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t k = 0; k < actual.size(); ++k) EXPECT_NEAR(actual[k], expected[k], tolerance) << "element " << k;
}

// An elementwise operator over one index, on equally long inputs.
Numbers map(OperatorKind kind, const std::vector<Numbers>& inputs, double value = 0) {
  OneOperator one(kind, {static_cast<int64_t>(inputs[0].size())}, {false});
  for (const Numbers& numbers : inputs) one.in({0}, numbers);
  return one.out({0}).value(value).run();
}

// y[b, e] = table[ids[b], e]; ids outside are clamped.
TEST(Gather, TakesTheRowsThatItsIdsSelect) {
  OneOperator one(OperatorKind::gather, {4, 2}, {false, false});
  one.in({kFixed, 1}, {10, 11, 20, 21, 30, 31}).in({0}, {2, 0, 7, -1}).out({0, 1});
  one.graph.dims.push_back({"rows", 3});
  one.graph.tensors[0].dims[0] = DimId(one.graph.dims.size() - 1);
  EXPECT_EQ(one.run(), Numbers({30, 31, 10, 11, 30, 31, 10, 11}));
  EXPECT_EQ(one.derivative(0, {1, 2, 3, 4, 5, 6, 7, 8}), Numbers({10, 12, 0, 0, 6, 8}));
}

// Its transpose: y[v, e] = Σ g[b, e] over the b with ids[b] == v.
TEST(ScatterAdd, SumsWhereItsIdsPoint) {
  OneOperator one(OperatorKind::scatter_add, {4, 2, 3}, {true, false, false});
  one.op().gathered = 2;
  one.in({0, 1}, {1, 2, 3, 4, 5, 6, 7, 8}).in({0}, {2, 0, 7, -1}).out({2, 1});
  EXPECT_EQ(one.run(), Numbers({10, 12, 0, 0, 6, 8}));
}

// So many points that threads share them.
constexpr int64_t kManyRows = 700;
constexpr int64_t kManyColumns = 600;

Numbers counted(int64_t count) {
  Numbers numbers(static_cast<size_t>(count));
  for (size_t k = 0; k < numbers.size(); ++k) numbers[k] = static_cast<double>(k % 1001);
  return numbers;
}

TEST(ManyPoints, OfAScatterAdd) {
  OneOperator one(OperatorKind::scatter_add, {kManyRows, kManyColumns, 3}, {true, false, false});
  one.op().gathered = 2;
  const Numbers g = counted(kManyRows * kManyColumns);
  Numbers ids;
  for (int64_t row = 0; row < kManyRows; ++row) ids.push_back(static_cast<double>(row * row % 3));
  one.in({0, 1}, g).in({0}, ids).out({2, 1});
  Numbers expected(3 * kManyColumns, 0.0);
  for (size_t k = 0; k < g.size(); ++k) {
    const auto id = static_cast<size_t>(ids[k / kManyColumns]);
    expected[id * kManyColumns + k % kManyColumns] += g[k];
  }
  EXPECT_EQ(one.run(), expected);
}

TEST(ManyPoints, OfAJoin) {
  OneOperator one(OperatorKind::join, {kManyRows, kManyColumns}, {false, false});
  one.in({0, 1}, counted(kManyRows * kManyColumns)).out({0, 1}).value(-7);
  one.op().regions = {{{2, kManyRows - 1}, {1, kManyColumns - 2}}};
  one.op().inputs[0].axes[0].offset = -2;
  Numbers expected(static_cast<size_t>(kManyRows * kManyColumns), -7.0);
  for (int64_t row = 2; row < kManyRows; ++row) {
    for (int64_t column = 1; column < kManyColumns - 1; ++column)
      expected[static_cast<size_t>(row * kManyColumns + column)] =
          static_cast<double>(((row - 2) * kManyColumns + column) % 1001);
  }
  EXPECT_EQ(one.run(), expected);
}

TEST(ManyPoints, OfACausalMask) {
  OneOperator one(OperatorKind::causal_mask, {2, kManyRows, kManyColumns}, {false, false, false});
  one.in({0, 1, 2}, counted(2 * kManyRows * kManyColumns)).out({0, 1, 2});
  Numbers expected = counted(2 * kManyRows * kManyColumns);
  for (size_t k = 0; k < expected.size(); ++k) {
    if (k % kManyColumns > k / kManyColumns % kManyRows) expected[k] = -kInfinity;
  }
  EXPECT_EQ(one.run(), expected);
}

TEST(Elementwise, Arithmetic) {
  const Numbers a = {1, -2, 3};
  const Numbers b = {4, 5, -6};
  EXPECT_EQ(map(OperatorKind::add, {a, b}), (Numbers{5, 3, -3}));
  EXPECT_EQ(map(OperatorKind::subtract, {a, b}), (Numbers{-3, -7, 9}));
  EXPECT_EQ(map(OperatorKind::multiply, {a, b}), (Numbers{4, -10, -18}));
  EXPECT_EQ(map(OperatorKind::divide, {a, b}), (Numbers{0.25, -0.4, -0.5}));
  EXPECT_EQ(map(OperatorKind::negate, {a}), (Numbers{-1, 2, -3}));
  EXPECT_EQ(map(OperatorKind::absolute, {a}), (Numbers{1, 2, 3}));
  EXPECT_EQ(map(OperatorKind::copy, {a}), a);
}

TEST(Elementwise, Functions) {
  expect_near(map(OperatorKind::exp, {{0, 1}}), {1, std::exp(1.0)});
  expect_near(map(OperatorKind::log, {{1, 2}}), {0, std::log(2.0)});
  expect_near(map(OperatorKind::sqrt, {{4, 2}}), {2, std::sqrt(2.0)});
  expect_near(map(OperatorKind::tanh, {{0, 0.5}}), {0, 0.46211715726000976});
  expect_near(map(OperatorKind::power, {{2, 3}}, 3), {8, 27});
}

TEST(Elementwise, MoreFunctions) {
  expect_near(map(OperatorKind::sin, {{0, 1}}), {0, 0.8414709848078965});
  expect_near(map(OperatorKind::cos, {{0, 1}}), {1, 0.5403023058681398});
  expect_near(map(OperatorKind::log1p, {{0, 1e-20, 1}}), {0, 1e-20, 0.6931471805599453}, 1e-25 + 1e-15);
  EXPECT_EQ(map(OperatorKind::log1p, {{1e-20}})[0], 1e-20);
  EXPECT_EQ(map(OperatorKind::expm1, {{1e-20}})[0], 1e-20);
  expect_near(map(OperatorKind::expm1, {{1}}), {1.718281828459045});
  expect_near(map(OperatorKind::erf, {{0, 0.5, -2}}), {0, 0.5204998778130465, -0.9953222650189527});
  EXPECT_EQ(map(OperatorKind::sign, {{-2.5, 0, 7}}), (Numbers{-1, 0, 1}));
  expect_near(map(OperatorKind::sigmoid, {{-1, 0, 2}}), {0.2689414213699951, 0.5, 0.8807970779778823});
  expect_near(map(OperatorKind::softplus, {{-1, 0, 2, 1000}}),
              {0.3132616875182228, 0.6931471805599453, 2.1269280110429727, 1000});
  EXPECT_EQ(OneOperator(OperatorKind::index, {4}, {false}).out({0}).run(), (Numbers{0, 1, 2, 3}));
}

TEST(Elementwise, Logic) {
  const Numbers a = {0, 0, 1, 1};
  const Numbers b = {0, 1, 0, 1};
  EXPECT_EQ(map(OperatorKind::logical_and, {a, b}), (Numbers{0, 0, 0, 1}));
  EXPECT_EQ(map(OperatorKind::logical_or, {a, b}), (Numbers{0, 1, 1, 1}));
  EXPECT_EQ(map(OperatorKind::logical_not, {a}), (Numbers{1, 1, 0, 0}));
}

TEST(Elementwise, ComparisonsAndSelections) {
  const Numbers a = {1, 2, 3};
  const Numbers b = {2, 2, 2};
  EXPECT_EQ(map(OperatorKind::maximum, {a, b}), (Numbers{2, 2, 3}));
  EXPECT_EQ(map(OperatorKind::minimum, {a, b}), (Numbers{1, 2, 2}));
  EXPECT_EQ(map(OperatorKind::less, {a, b}), (Numbers{1, 0, 0}));
  EXPECT_EQ(map(OperatorKind::less_equal, {a, b}), (Numbers{1, 1, 0}));
  EXPECT_EQ(map(OperatorKind::equal, {a, b}), (Numbers{0, 1, 0}));
  EXPECT_EQ(map(OperatorKind::not_equal, {a, b}), (Numbers{1, 0, 1}));
  EXPECT_EQ(map(OperatorKind::where, {{1, 0, 1}, a, b}), (Numbers{1, 2, 3}));
  EXPECT_TRUE(std::isnan(map(OperatorKind::maximum, {{1}, {std::nan("")}})[0]));
  EXPECT_TRUE(std::isnan(map(OperatorKind::minimum, {{std::nan("")}, {1}})[0]));
}

TEST(Elementwise, Activations) {
  EXPECT_EQ(map(OperatorKind::relu, {{-1, 0, 2}}), (Numbers{0, 0, 2}));
  expect_near(map(OperatorKind::gelu, {{-1, 0, 2}}), {-0.15865525393145707, 0, 1.9544997361036416});
  expect_near(map(OperatorKind::gelu_tanh, {{-1, 0, 2}}), {-0.15880800939172324, 0, 1.954597694087775});
  expect_near(map(OperatorKind::silu, {{-1, 0, 2}}), {-0.2689414213699951, 0, 1.7615941559557646});
}

TEST(Elementwise, GradientsAgreeWithDuals) {
  const Numbers a = {-2.5, -0.3, 0.7, 3};
  const Numbers g = {1, -2, 0.5, 3};
  const auto derivative = [&](OperatorKind kind, double value = 0) {
    return OneOperator(kind, {4}, {false}).in({0}, a).out({0}).value(value).derivative(0, g);
  };
  expect_near(map(OperatorKind::tanh_dx, {map(OperatorKind::tanh, {a}), g}), derivative(OperatorKind::tanh));
  expect_near(map(OperatorKind::power_dx, {a, g}, 3), derivative(OperatorKind::power, 3));
  expect_near(map(OperatorKind::relu_dx, {map(OperatorKind::relu, {a}), g}), derivative(OperatorKind::relu));
  expect_near(map(OperatorKind::gelu_dx, {a, g}), derivative(OperatorKind::gelu));
  expect_near(map(OperatorKind::gelu_tanh_dx, {a, g}), derivative(OperatorKind::gelu_tanh));
  expect_near(map(OperatorKind::silu_dx, {a, g}), derivative(OperatorKind::silu));
  expect_near(map(OperatorKind::erf_dx, {a, g}), derivative(OperatorKind::erf));
  expect_near(map(OperatorKind::sigmoid_dx, {map(OperatorKind::sigmoid, {a}), g}), derivative(OperatorKind::sigmoid));
  expect_near(map(OperatorKind::multiply, {map(OperatorKind::sigmoid, {a}), g}), derivative(OperatorKind::softplus));
  expect_near(map(OperatorKind::multiply, {map(OperatorKind::cos, {a}), g}), derivative(OperatorKind::sin));
  expect_near(map(OperatorKind::multiply, {map(OperatorKind::exp, {a}), g}), derivative(OperatorKind::expm1));
  EXPECT_EQ(derivative(OperatorKind::sign), (Numbers{0, 0, 0, 0}));
  EXPECT_EQ(map(OperatorKind::relu_dx, {{0, 1}, {5, 5}}), (Numbers{0, 5}));
}

TEST(Elementwise, DropoutWritesItsMask) {
  OneOperator one(OperatorKind::dropout, {2, 3}, {false, false});
  one.in({0, 1}, {1, 2, 3, 4, 5, 6}).out({0, 1}).out({0, 1}).value(0.5);
  one.op().subsequence = 3;
  one.run({.seed = 7, .step = 2});
  for (size_t e = 0; e < 6; ++e) {
    const double mask = dropout_keeps(7, 2, 3, e, 0.5) ? 2 : 0;
    EXPECT_EQ(one.output(1)[e], mask);
    EXPECT_EQ(one.output(0)[e], mask * static_cast<double>(e + 1));
  }
  EXPECT_EQ(map(OperatorKind::dropout_dx, {{0, 2}, {3, 4}}), (Numbers{0, 8}));
  one.value(0).run({.seed = 7, .step = 2});
  EXPECT_EQ(one.output(0), (Numbers{1, 2, 3, 4, 5, 6}));
}

TEST(Elementwise, CausalMaskHidesLaterKeys) {
  const Numbers scores = {1, 2, 3, 4, 5, 6};  // [query 2, key 3]
  const Numbers masked =
      OneOperator(OperatorKind::causal_mask, {2, 3}, {false, false}).in({0, 1}, scores).out({0, 1}).run();
  EXPECT_EQ(masked, (Numbers{1, -kInfinity, -kInfinity, 4, 5, -kInfinity}));
  OneOperator dx(OperatorKind::causal_mask_dx, {2, 3}, {false, false});
  EXPECT_EQ(dx.in({0, 1}, scores).out({0, 1}).run(), (Numbers{1, 0, 0, 4, 5, 0}));
}

TEST(Accesses, TransposeBroadcastAndFixedAxes) {
  // y[i, j] = a[j, i] + b[1, j]
  OneOperator one(OperatorKind::add, {2, 3}, {false, false});
  one.in({1, 0}, {1, 2, 3, 4, 5, 6}).in({kFixed, 1}, {10, 20, 30}).out({0, 1});
  EXPECT_EQ(one.run(), (Numbers{11, 23, 35, 12, 24, 36}));
}

TEST(Accesses, DiagonalIsReadAndEmbedded) {
  OneOperator read(OperatorKind::copy, {3}, {false});
  EXPECT_EQ(read.in({0, 0}, {1, 2, 3, 4, 5, 6, 7, 8, 9}).out({0}).run(), (Numbers{1, 5, 9}));
  OneOperator embed(OperatorKind::embed_diagonal, {3, 3}, {false, false});
  embed.op().diagonal = {0, 0};
  EXPECT_EQ(embed.in({0}, {1, 5, 9}).out({0, 1}).run(), (Numbers{1, 0, 0, 0, 5, 0, 0, 0, 9}));
}

TEST(Reductions, SumMaxMin) {
  const Numbers a = {1, 5, 3, 6, 2, 4};
  const auto reduce = [&](OperatorKind kind) {
    return OneOperator(kind, {2, 3}, {false, true}).in({0, 1}, a).out({0}).run();
  };
  EXPECT_EQ(reduce(OperatorKind::sum), (Numbers{9, 12}));
  EXPECT_EQ(reduce(OperatorKind::max), (Numbers{5, 6}));
  EXPECT_EQ(reduce(OperatorKind::min), (Numbers{1, 2}));
}

TEST(Reductions, OutputMayBePermutedWithFixedAxes) {
  // y[k, 1, i] = Σ_j a[i, j, k]
  OneOperator one(OperatorKind::sum, {2, 2, 3}, {false, true, false});
  one.in({0, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}).out({2, kFixed, 0});
  EXPECT_EQ(one.run(), (Numbers{5, 17, 7, 19, 9, 21}));
}

TEST(Reductions, TraceAndBroadcastSum) {
  OneOperator trace(OperatorKind::sum, {2}, {true});
  EXPECT_EQ(trace.in({0, 0}, {1, 2, 3, 4}).out({}).run(), (Numbers{5}));
  OneOperator broadcast(OperatorKind::sum, {2, 4}, {false, true});
  EXPECT_EQ(broadcast.in({0}, {1, 2}).out({0}).run(), (Numbers{4, 8}));
}

TEST(Reductions, ExtremumGradientIsShared) {
  OneOperator one(OperatorKind::extremum_dx, {2, 3}, {false, true});
  one.in({0, 1}, {1, 5, 5, 6, 2, 4}).in({0}, {5, 6}).in({0}, {3, 7}).out({0, 1});
  EXPECT_EQ(one.run(), (Numbers{0, 1.5, 1.5, 7, 0, 0}));
}

TEST(Softmax, NormalizesRowsAndIgnoresMaskedElements) {
  // Along the first index: columns (0, log 3) and (1000, -inf).
  OneOperator one(OperatorKind::softmax, {2, 2}, {true, false});
  one.in({0, 1}, {0, 1000, std::log(3.0), -kInfinity}).out({0, 1});
  expect_near(one.run(), {0.25, 1, 0.75, 0});
  const Numbers g = {1, 2, 3, 4};
  OneOperator dx(OperatorKind::softmax_dx, {2, 2}, {true, false});
  dx.in({0, 1}, one.output(0)).in({0, 1}, g).out({0, 1});
  expect_near(dx.run(), {-0.375, 0, 0.375, 0});
  expect_near(dx.run(), one.derivative(0, g));
}

TEST(LogSumExp, IsTheLogarithmOfASoftmaxsDivisor) {
  // As above: columns (0, log 3) and (1000, -inf), whose exponential would overflow.
  OneOperator one(OperatorKind::log_sum_exp, {2, 2}, {true, false});
  one.in({0, 1}, {0, 1000, std::log(3.0), -kInfinity}).out({1});
  expect_near(one.run(), {std::log(4.0), 1000});
  expect_near(one.derivative(0, {2, 3}), {0.5, 3, 1.5, 0});  // the softmax, times g
}

// The bound holds for the same computation in float32, and is at most a few of its rounding errors.
TEST(LogSumExp, Bounded) {
  OneOperator one(OperatorKind::log_sum_exp, {8}, {true});
  one.in({0}, {0.1, 0.7, -2.3, 5.1, 4.9, 0.3, -7.7, 1.1}).out({});
  Values<Bounded<24>> values(one.graph.tensors.size());
  for (const double x : one.values[0]) values[0].emplace_back(x);
  ASSERT_TRUE(interpret(one.graph, values, {}));
  float sum = 0;
  for (const double x : one.values[0]) sum += std::exp(static_cast<float>(x) - 5.1F);
  const Bounded<24>& found = values[one.op().outputs[0].tensor.at()][0];
  EXPECT_NEAR(found.value, one.run()[0], 1e-12);
  EXPECT_LE(std::abs(static_cast<double>(std::log(sum) + 5.1F) - found.value), found.error);
  EXPECT_LT(found.error, 64 * 0x1p-24 * 5.1);
}

struct Norm {
  Numbers x = {1, 2, 4, -1, 0.5, 3};  // [row 2, channel 3]
  Numbers weight = {2, -1, 0.5};
  Numbers g = {1, -2, 3, 0.5, 1, -1};
};

TEST(Layernorm, ForwardAndGradients) {
  const Norm norm;
  OneOperator one(OperatorKind::layernorm, {2, 3}, {false, true});
  one.in({0, 1}, norm.x).in({1}, norm.weight).in({1}, {0.1, 0.2, 0.3}).out({0, 1}).out({0}).out({0}).value(0.5);
  const Numbers y = one.run();
  // Row 0: mean 7/3, variance 14/9.
  const double mean = 7.0 / 3;
  const double rstd = 1 / std::sqrt(14.0 / 9 + 0.5);
  EXPECT_NEAR(one.output(1)[0], mean, 1e-12);
  EXPECT_NEAR(one.output(2)[0], rstd, 1e-12);
  expect_near({y[0], y[1], y[2]},
              {(1 - mean) * rstd * 2 + 0.1, -(2 - mean) * rstd + 0.2, (4 - mean) * rstd * 0.5 + 0.3});

  OneOperator dx(OperatorKind::layernorm_dx, {2, 3}, {false, true});
  dx.in({0, 1}, norm.x).in({1}, norm.weight).in({0}, one.output(1)).in({0}, one.output(2)).in({0, 1}, norm.g);
  expect_near(dx.out({0, 1}).run(), one.derivative(0, norm.g));

  OneOperator dw(OperatorKind::layernorm_dw, {2, 3}, {true, false});
  dw.in({0, 1}, norm.x).in({0}, one.output(1)).in({0}, one.output(2)).in({0, 1}, norm.g).out({1}).out({1});
  expect_near(dw.run(), one.derivative(1, norm.g));
  expect_near(dw.output(1), one.derivative(2, norm.g));
  expect_near(dw.output(1), {1.5, -1, 2});
}

TEST(Rmsnorm, ForwardAndGradients) {
  const Norm norm;
  OneOperator one(OperatorKind::rmsnorm, {2, 3}, {false, true});
  one.in({0, 1}, norm.x).in({1}, norm.weight).out({0, 1}).out({0}).value(0.5);
  const Numbers y = one.run();
  const double rstd = 1 / std::sqrt(21.0 / 3 + 0.5);
  EXPECT_NEAR(one.output(1)[0], rstd, 1e-12);
  expect_near({y[0], y[1], y[2]}, {2 * rstd, -2 * rstd, 2 * rstd});

  OneOperator dx(OperatorKind::rmsnorm_dx, {2, 3}, {false, true});
  dx.in({0, 1}, norm.x).in({1}, norm.weight).in({0}, one.output(1)).in({0, 1}, norm.g).out({0, 1});
  expect_near(dx.run(), one.derivative(0, norm.g));

  OneOperator dw(OperatorKind::rmsnorm_dw, {2, 3}, {true, false});
  dw.in({0, 1}, norm.x).in({0}, one.output(1)).in({0, 1}, norm.g).out({1});
  expect_near(dw.run(), one.derivative(1, norm.g));
}

TEST(Contraction, MatrixProductWithTransposedOperandScaledByScalars) {
  // y[j, i] = 10 · Σ_k a[i, k] · b[j, k]
  OneOperator one(OperatorKind::contraction, {2, 2, 3}, {false, false, true});
  one.in({0, 2}, {1, 2, 3, 4, 5, 6}).in({1, 2}, {1, 0, -1, 2, 1, 0}).in({}, {5}).in({}, {2}).out({1, 0});
  EXPECT_EQ(one.run(), (Numbers{-20, -20, 40, 130}));
}

TEST(Contraction, OuterProductIntoFixedAxisAndDiagonalOperand) {
  // y[i, 1, j] = a[i] · b[j, j]
  OneOperator one(OperatorKind::contraction, {2, 2}, {false, false});
  EXPECT_EQ(one.in({0}, {2, 3}).in({1, 1}, {1, 7, 7, 4}).out({0, kFixed, 1}).run(), (Numbers{2, 8, 3, 12}));
}

TEST(Interpret, FillsConstants) {
  OneOperator one(OperatorKind::multiply, {2}, {false});
  one.in({0}, {3, 4}).in({}, {}).out({0});
  one.graph.tensors[1].role = TensorRole::constant;
  one.graph.tensors[1].value = 0.5;
  EXPECT_EQ(one.run(), (Numbers{1.5, 2}));
}

TEST(Interpret, NamesTheTensorThatIsMissingOrOfWrongSize) {
  for (const Numbers& numbers : {Numbers{}, Numbers{1, 2}}) {
    OneOperator one(OperatorKind::negate, {3}, {false});
    one.in({0}, numbers).out({0});
    for (const TensorRole role : {TensorRole::argument, TensorRole::result_gradient}) {
      one.graph.tensors[0].role = role;
      const Result<Done> done = interpret(one.graph, one.values, {});
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error().kind, ErrorKind::bad_input);
      EXPECT_NE(to_string(done.error()).find("'t0'"), std::string::npos) << to_string(done.error());
    }
  }
}

TEST(Interpret, RejectsGraphsThatDoNotFitIntoMemory) {
  for (const int64_t extent : {int64_t{1} << 31, std::numeric_limits<int64_t>::max()}) {
    OneOperator one(OperatorKind::negate, {extent, 2}, {false, false});
    one.in({0, 1}, {}).out({0, 1});
    const Result<Done> done = interpret(one.graph, one.values, {});
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().kind, ErrorKind::bad_input);
    EXPECT_EQ(done.error().diagnostics[0].remedy, "choose smaller sizes with --size");
    if (extent == int64_t{1} << 31) {
      EXPECT_NE(done.error().diagnostics[0].message.find(" 64.0 GiB"), std::string::npos);
    }
  }
}

TEST(BoundedNumbers, ContainTheErrorOfASum) {
  Bounded<53> sum;
  long double exact = 0;
  for (uint64_t e = 0; e < 10000; ++e) {
    const double x = uniform_draw(3, 0, e);
    const double y = uniform_draw(3, 1, e);
    sum = sum + Bounded<53>(x) * Bounded<53>(y);
    exact += static_cast<long double>(x) * static_cast<long double>(y);
  }
  const auto error = static_cast<double>(std::abs(static_cast<long double>(sum.value) - exact));
  EXPECT_GT(error, 0);
  EXPECT_LE(error, sum.error);
  EXPECT_LT(sum.error, 1e-8);  // n · u · Σ|x|, for any order
}

TEST(BoundedNumbers, ContainTheErrorOfFunctions) {
  for (uint64_t e = 0; e < 1000; ++e) {
    const double x = 1.5 + uniform_draw(4, 0, e);
    const Bounded<53> third = Bounded<53>(x) / 3;
    const long double exact = static_cast<long double>(x) / 3;
    const auto check = [](const Bounded<53>& y, long double expected) {
      EXPECT_LE(static_cast<double>(std::abs(static_cast<long double>(y.value) - expected)), y.error);
      EXPECT_LE(y.error, 30 * 0x1p-53 * std::max(std::abs(y.value), 1.0));
    };
    check(exp(third), std::exp(exact));
    check(log(third), std::log(exact));
    check(sqrt(third), std::sqrt(exact));
    check(tanh(third), std::tanh(exact));
    check(erf(third), std::erf(exact));
    check(pow(third, 2.5), std::pow(exact, 2.5L));
  }
}

TEST(BoundedNumbers, StayExactWhereNothingIsRounded) {
  const Bounded<53> masked(-kInfinity);
  EXPECT_EQ(exp(masked).value, 0);
  EXPECT_EQ(exp(masked).error, 0);
  EXPECT_EQ((masked - 3).error, 0);
  EXPECT_EQ((Bounded<53>(0) * Bounded<53>(1, kInfinity)).error, 0);
  EXPECT_EQ((Bounded<53>(0) * Bounded<53>(5)).error, 0);
  EXPECT_EQ((Bounded<53>(1) + Bounded<53>(2)).error, 3 * 0x1p-53);
  EXPECT_EQ((Bounded<24>(1) + Bounded<24>(2)).error, 3 * 0x1p-24);
}

TEST(BoundedNumbers, MaximumAccountsForTheOtherOperand) {
  EXPECT_EQ(larger(Bounded<53>(0), Bounded<53>(-1, 3)).error, 2);
  EXPECT_EQ(larger(Bounded<53>(0), Bounded<53>(-1, 0.5)).error, 0);
  EXPECT_EQ(larger(Bounded<53>(-kInfinity), Bounded<53>(-kInfinity)).error, 0);
}

TEST(BoundedNumbers, RunThroughTheInterpreter) {
  OneOperator one(OperatorKind::softmax, {2, 2}, {false, true});
  one.in({0, 1}, {0.1, 0.2, 5, -kInfinity}).out({0, 1});
  Values<Bounded<53>> values(2);
  for (const double x : one.values[0]) values[0].emplace_back(x);
  ASSERT_TRUE(interpret(one.graph, values, {}));
  const Numbers y = one.run();
  for (size_t k = 0; k < y.size(); ++k) EXPECT_EQ(values[1][k].value, y[k]);
  EXPECT_GT(values[1][0].error, 0);
  EXPECT_LT(values[1][0].error, 1e-14);
  EXPECT_EQ(values[1][3].error, 0);
}

TEST(Duals, KnowTheDerivatives) {
  const Dual<double> x(0.75, 2);
  EXPECT_DOUBLE_EQ((x * x + Dual<double>(3) * x).tangent, 2 * (2 * 0.75 + 3));
  EXPECT_DOUBLE_EQ((Dual<double>(1) / x).tangent, -2 / (0.75 * 0.75));
  EXPECT_DOUBLE_EQ((x - x * x).tangent, 2 * (1 - 1.5));
  EXPECT_DOUBLE_EQ(exp(x).tangent, 2 * std::exp(0.75));
  EXPECT_DOUBLE_EQ(log(x).tangent, 2 / 0.75);
  EXPECT_DOUBLE_EQ(sqrt(x).tangent, 1 / std::sqrt(0.75));
  EXPECT_DOUBLE_EQ(tanh(x).tangent, 2 / (std::cosh(0.75) * std::cosh(0.75)));
  EXPECT_DOUBLE_EQ(erf(x).tangent, 4 / std::sqrt(std::acos(-1.0)) * std::exp(-0.5625));
  EXPECT_DOUBLE_EQ(pow(x, 3).tangent, 2 * 3 * 0.5625);
  EXPECT_DOUBLE_EQ(abs(-x).tangent, 2);
  EXPECT_DOUBLE_EQ(larger(x, Dual<double>(0.5, 7)).tangent, 2);
  EXPECT_DOUBLE_EQ(larger(x, Dual<double>(0.75, 7)).tangent, 2);
  EXPECT_DOUBLE_EQ(smaller(x, Dual<double>(0.5, 7)).tangent, 7);
}

TEST(Duals, LeaveMaskedElementsWithoutDerivative) {
  const Tangent scaled = Tangent(-kInfinity) * Tangent(0.125);
  EXPECT_EQ(scaled.tangent.value, 0);
  EXPECT_EQ(exp(scaled).tangent.value, 0);
}

}  // namespace
}  // namespace millrace
