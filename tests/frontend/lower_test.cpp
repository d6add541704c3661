// Program text to graph text, except einsum (einsum_test.cpp) and sizes (sizes_test.cpp).
#include <gtest/gtest.h>

#include "frontend/program_text.h"

namespace millrace {
namespace {

TEST(Lower, PrintsArgumentsScalarsOperatorsAndResults) {
  EXPECT_EQ(printed(R"(
A = 4
def layer(x: dace.float16[A, 5], s: np.float32):
    y = s * x
    return y
)"),
            R"(program layer
argument x: float16[A=4, 5]
scalar s: float32
forward
  y[A, 5] = multiply(s, x[A, 5])
result y
)");
}

TEST(Lower, TakesTheLastFunctionOrTheEntry) {
  constexpr std::string_view program = R"(
@dace.program
def first(x: float32[4]):
    "a docstring"
    return -x

def last(x: float32[4]): return np.exp(x)
)";
  EXPECT_EQ(operators_of(program), "result[4] = exp(x[4])\n");
  ProgramOptions options;
  options.entry = "first";
  EXPECT_EQ(operators_of(program, options), "result[4] = negate(x[4])\n");
}

TEST(Lower, NumbersThatAreOnlyChosenBecomeTheTypesLargest) {
  constexpr std::string_view program = R"(
def f(x: float32[4]):
    y = np.where(x > 0, x, -1e9)
    return np.minimum(y, 1e300) * 1e4
)";
  ProgramOptions options;
  options.dtype = DType::float16;
  EXPECT_EQ(operators_of(program, options),
            "y.1[4] = less(0, x[4])\n"
            "y[4] = where(y.1[4], x[4], -65504)\n"
            "result.1[4] = minimum(y[4], 65504)\n"
            "result[4] = multiply(result.1[4], 10000)\n");
  options.dtype = DType::float64;
  EXPECT_NE(operators_of(program, options).find("where(y.1[4], x[4], -1000000000)"), std::string::npos);
}

TEST(Lower, StoresEveryTensorAsTheChosenType) {
  ProgramOptions options;
  options.dtype = DType::bfloat16;
  const Graph graph =
      graph_of("def f(x: float16[4], w: float64[4], s: float32):\n    return s * rmsnorm(x, w)\n", options);
  for (const Tensor& tensor : graph.tensors) {
    const bool statistic = tensor.name.ends_with(".rstd");
    EXPECT_EQ(tensor.dtype, statistic ? DType::float32 : DType::bfloat16) << tensor.name;
  }
}

TEST(Lower, MixedTypesMeetInOneThatHoldsBoth) {
  const Graph graph = graph_of(R"(
def f(h: float16[4], b: bfloat16[4], s: float32[4], d: float64[4]):
    return h + h, h + b, h + s, b + d, h * 2.5
)");
  std::vector<std::string_view> types;
  for (const Output& result : graph.results) types.push_back(name_of(graph.tensor(result.tensor).dtype));
  EXPECT_EQ(join(types, " "), "float16 float32 float32 float64 float16");
}

// As in NumPy, numbers of the text and scalar arguments never widen a tensor.
TEST(Lower, NumbersAndScalarsDoNotWiden) {
  const Graph graph = graph_of(R"(
def f(x: float16[4], s: float16):
    twice = 2 * s
    return twice * x
)");
  EXPECT_EQ(graph.tensor(graph.results[0].tensor).dtype, DType::float16);
}

TEST(Lower, WhereMayChooseBetweenNumbers) {
  const Graph graph = graph_of(R"(
def f(x: float16[4]):
    step = np.where(x > 0, 1, 0)
    return step * x
)");
  ASSERT_EQ(graph.results.size(), 1U);
  EXPECT_NE(graph.tensor(graph.results[0].tensor).dtype, DType::boolean);
}

TEST(Lower, ChainedAssignmentsNameOneValue) {
  EXPECT_EQ(printed(R"(
def f(x: float32[4]):
    a = b = -x
    c = d, e = a, np.exp(b)
    return b, e
)"),
            R"(program f
argument x: float32[4]
forward
  a[4] = negate(x[4])
  c.1[4] = exp(a[4])
result b = a
result e = c.1
)");
}

TEST(Lower, ANameMayBeAssignedAgain) {
  EXPECT_EQ(printed(R"(
def f(x: float32[4]):
    y = -x
    y = np.exp(y)
    x = np.tanh(y) + x
    return x
)"),
            R"(program f
argument x: float32[4]
forward
  y[4] = negate(x[4])
  y.2[4] = exp(y[4])
  x.1[4] = tanh(y.2[4])
  x.2[4] = add(x.1[4], x[4])
result x = x.2
)");
}

TEST(Lower, ArithmeticIsByPythonsPrecedence) {
  EXPECT_EQ(operators_of("def f(x: float32[4], y: float32[4]):\n    return -x ** 2 + x * y - y / (x - y)\n"),
            "result.1[4] = power(x[4]) exponent=2\n"
            "result.1.2[4] = negate(result.1[4])\n"
            "result.1.3[4] = multiply(x[4], y[4])\n"
            "result.1.4[4] = add(result.1.2[4], result.1.3[4])\n"
            "result.1.5[4] = subtract(x[4], y[4])\n"
            "result.1.6[4] = divide(y[4], result.1.5[4])\n"
            "result[4] = subtract(result.1.4[4], result.1.6[4])\n");
}

TEST(Lower, APowerOfANumberIsAnExponential) {
  EXPECT_EQ(operators_of("def f(x: float32[4]):\n    return 1 ** x + 0.5 ** (x - 1)\n"),
            "result.1[4] = multiply(x[4], 0)\n"
            "result.1.2[4] = exp(result.1[4])\n"
            "result.1.3[4] = subtract(x[4], 1)\n"
            "result.1.4[4] = multiply(result.1.3[4], -0.69314718055994529)\n"
            "result.1.5[4] = exp(result.1.4[4])\n"
            "result[4] = add(result.1.2[4], result.1.5[4])\n");
}

TEST(Lower, ConstantsAreComputedAndSharedByValue) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[4]):
    c = 2 ** 3 - 1
    y = x * (c / 2)
    z = (y - 3.5) / 0.5
    return 1 - z
)"),
            "y[4] = multiply(x[4], 3.5)\n"
            "z.1[4] = subtract(y[4], 3.5)\n"
            "z[4] = divide(z.1[4], 0.5)\n"
            "result[4] = subtract(1, z[4])\n");
}

TEST(Lower, LinesContinueInBracketsAndAfterABackslash) {
  EXPECT_EQ(
      operators_of("def f(x: float32[4],  # first\n      y: float32[4],\n      ):\n    return (x +\n\n  y) \\\n * 2\n"),
      "result.1[4] = add(x[4], y[4])\nresult[4] = multiply(result.1[4], 2)\n");
}

TEST(Lower, DeadCodeIsRemovedArgumentsStay) {
  EXPECT_EQ(printed(R"(
def f(x: float32[4], unused: float32[4]):
    dead = np.exp(unused)
    deader = dead * 2
    return -x
)"),
            R"(program f
argument x: float32[4]
argument unused: float32[4]
forward
  result[4] = negate(x[4])
result result
)");
}

// No two results share a caller's buffer: a tensor that would be shared is copied.
TEST(Lower, ResultsAreSeparateTensors) {
  EXPECT_EQ(printed(R"(
def f(x: float32[4], s: float32):
    y = -x
    return x, y, y, y[:, None], s
)"),
            R"(program f
argument x: float32[4]
scalar s: float32
forward
  y[4] = negate(x[4])
  x.1[4] = copy(x[4])
  y.1[4] = copy(y[4])
  result_3.1[4, 1] = copy(y[4])
  s.1 = copy(s)
result x = x.1
result y
result y_2 = y.1
result result_3 = result_3.1
result s = s.1
)");
}

TEST(Lower, AProgramHasAResult) {
  EXPECT_NE(error_of("def f(x: float32[4]):\n    return ()\n"), "") << "nothing is computed";
}

TEST(Lower, OperatorsAreNamedByTheirPurpose) {
  EXPECT_EQ(names_of_operators(graph_of(R"(
def f(x: float32[4, 4], b: float32[4]):
    y = np.einsum("ij,jk->ik", x, x) + b
    y = y + x
    z = softmax(y) * np.einsum("ii->i", x)
    return z, np.einsum("ij->ji", x), x + 1
)")),
            "y einsum, y bias, y residual, z softmax, z diagonal, z multiply, result_2 add, result_1 transpose");
}

}  // namespace
}  // namespace millrace
