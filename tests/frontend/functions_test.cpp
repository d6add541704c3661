// Calls of named functions to graph text, and the messages for those that are not valid.
#include "frontend/functions.h"

#include <gtest/gtest.h>

#include "frontend/program_text.h"

namespace millrace {
namespace {

// The operators of one expression of x: float32[2, 3], y: float32[3, 4], v: float32[3] and w: float32[2, 3].
std::string lowered(const std::string& expression) {
  return operators_of(
      concat("def f(x: float32[2, 3], y: float32[3, 4], v: float32[3], w: float32[2, 3], c: float32[2]):\n    return ",
             expression, "\n"));
}

std::string message_of(const std::string& expression) {
  const std::string message = error_of(
      concat("def f(x: float32[2, 3], y: float32[3, 4], v: float32[3], w: float32[2, 3], c: float32[2]):\n    return ",
             expression, "\n"));
  const size_t begin = message.find("error: ");
  return begin == std::string::npos ? message : message.substr(begin + 7, message.find('\n', begin) - begin - 7);
}

TEST(Functions, ElementwiseFunctionsAreOneOperator) {
  for (const char* const name : {"sin", "cos", "log1p", "expm1", "sign", "erf", "sigmoid", "softplus"})
    EXPECT_EQ(lowered(concat(name, "(x)")), concat("result[2, 3] = ", name, "(x[2, 3])\n"));
}

TEST(Functions, SomeElementwiseFunctionsAreMadeOfOthers) {
  EXPECT_EQ(lowered("np.clip(x, -1, 2)"), R"(result.1[2, 3] = maximum(x[2, 3], -1)
result[2, 3] = minimum(result.1[2, 3], 2)
)");
  EXPECT_EQ(lowered("np.clip(x, None, v)"), "result[2, 3] = minimum(x[2, 3], v[3])\n");
  EXPECT_EQ(lowered("np.reciprocal(x)"), "result[2, 3] = divide(1, x[2, 3])\n");
  EXPECT_EQ(lowered("np.exp2(x)"), R"(result.1[2, 3] = multiply(x[2, 3], 0.69314718055994529)
result[2, 3] = exp(result.1[2, 3])
)");
  EXPECT_EQ(lowered("np.log10(x)"), R"(result.1[2, 3] = log(x[2, 3])
result[2, 3] = multiply(result.1[2, 3], 0.43429448190325182)
)");
}

TEST(Functions, FoldNumbers) {
  EXPECT_EQ(lowered("x * np.sin(0.5)"), "result[2, 3] = multiply(x[2, 3], 0.47942553860420301)\n");
  EXPECT_EQ(lowered("x * np.clip(3, 0, 2)"), "result[2, 3] = multiply(x[2, 3], 2)\n");
}

TEST(Functions, ComparisonsAndLogicMakeBooleans) {
  EXPECT_EQ(lowered("np.where(np.logical_not(np.logical_and(np.greater(x, w), x < 1)), x, w)"),
            R"(result.1[2, 3] = less(w[2, 3], x[2, 3])
result.1.2[2, 3] = less(x[2, 3], 1)
result.1.3[2, 3] = logical_and(result.1[2, 3], result.1.2[2, 3])
result.1.4[2, 3] = logical_not(result.1.3[2, 3])
result[2, 3] = where(result.1.4[2, 3], x[2, 3], w[2, 3])
)");
  const Graph graph = graph_of(
      "def f(x: float16[4]):\n    near = np.logical_or(x < 0, np.not_equal(x, 2))\n    return np.where(near, 1, 0)\n");
  for (const Operator& op : graph.operators) {
    const DType dtype = graph.tensor(op.outputs[0].tensor).dtype;
    EXPECT_EQ(dtype, op.kind == OperatorKind::where ? DType::float16 : DType::boolean) << op.name;
  }
  EXPECT_EQ(message_of("np.where(np.logical_and(x, x < 1), x, w)"), "an operand of logical_and is not a comparison");
  EXPECT_EQ(message_of("np.logical_not(x < 1) * x"), "a comparison is not a number");
}

TEST(Functions, ConditionsAreComparedAndConverted) {
  const std::string differ = R"(result.1[2, 3] = less(x[2, 3], 0)
result.1.2[2, 3] = less(x[2, 3], w[2, 3])
result.1.3[2, 3] = logical_or(result.1[2, 3], result.1.2[2, 3])
result.1.4[2, 3] = logical_and(result.1[2, 3], result.1.2[2, 3])
result.1.5[2, 3] = logical_not(result.1.4[2, 3])
result.1.6[2, 3] = logical_and(result.1.3[2, 3], result.1.5[2, 3])
)";
  for (const char* const operators : {"(x < 0) != (x < w)", "(x < 0) ^ (x < w)", "np.not_equal(x < 0, x < w)"})
    EXPECT_EQ(lowered(concat("np.where(", operators, ", x, w)")),
              differ + "result[2, 3] = where(result.1.6[2, 3], x[2, 3], w[2, 3])\n")
        << operators;
  for (const char* const operators : {"(x < 0) == (x < w)", "np.equal(x < 0, x < w)"})
    EXPECT_EQ(lowered(concat("np.where(", operators, ", x, w)")),
              differ + "result.1.7[2, 3] = logical_not(result.1.6[2, 3])\n" +
                  "result[2, 3] = where(result.1.7[2, 3], x[2, 3], w[2, 3])\n")
        << operators;
  EXPECT_EQ(message_of("(x < 0) == x"), "a comparison is not a number");
  const Graph graph = graph_of("def f(x: float16[4], m: bool_[4]):\n    return x * m.astype(float32)\n");
  ASSERT_EQ(graph.operators.size(), 2U);
  EXPECT_EQ(graph.operators[0].kind, OperatorKind::where);
  for (const Operator& op : graph.operators) EXPECT_EQ(graph.tensor(op.outputs[0].tensor).dtype, DType::float32);
}

TEST(Functions, Statistics) {
  EXPECT_EQ(lowered("np.var(x, axis=1, ddof=1)"), R"(result.1[2, 1] = sum(x[2, 3]) over 3
result.1.2[2, 1] = multiply(result.1[2, 1], 0.33333333333333331)
result.1.3[2, 3] = subtract(x[2, 3], result.1.2[2, 1])
result.1.4[2, 3] = power(result.1.3[2, 3]) exponent=2
result.1.5[2] = sum(result.1.4[2, 3]) over 3
result[2] = multiply(result.1.5[2], 0.5)
)");
  EXPECT_EQ(lowered("np.linalg.norm(x, axis=0, keepdims=True)"), R"(result.1[2, 3] = power(x[2, 3]) exponent=2
result.1.2[1, 3] = sum(result.1[2, 3]) over 2
result[1, 3] = sqrt(result.1.2[1, 3])
)");
  EXPECT_EQ(lowered("np.linalg.norm(x, ord=1, axis=-1)"), R"(result.1[2, 3] = absolute(x[2, 3])
result[2] = sum(result.1[2, 3]) over 3
)");
  EXPECT_EQ(lowered("logsumexp(x, axis=(0, 1))"), "result = log_sum_exp(x[2, 3]) over 2, 3\n");
  EXPECT_EQ(message_of("np.var(x, axis=0, ddof=2)"), "'var' divides by 2 - 2");
  EXPECT_EQ(message_of("np.var(x, 0, 1)"), "'var' takes at most 2 arguments without a name");
  EXPECT_EQ(message_of("np.linalg.norm(x, 2)"), "np.linalg.norm of order 2 over 2 axes is not supported");
}

TEST(Functions, NormalizationsAlongSeveralAxes) {
  EXPECT_EQ(lowered("softmax(x, axis=(0, 1))"), "result[2, 3] = softmax(x[2, 3]) over 2, 3\n");
  EXPECT_EQ(lowered("log_softmax(x)"), R"(result.1[2, 1] = log_sum_exp(x[2, 3]) over 3
result[2, 3] = subtract(x[2, 3], result.1[2, 1])
)");
  const Graph graph = graph_of(
      "def f(x: float32[2, 3, 4], w: float32[2, 4], b: float32[2, 4]):\n    return layernorm(x, w, b, axis=(2, 0))\n");
  ASSERT_EQ(graph.operators.size(), 1U);
  EXPECT_EQ(graph.operators[0].reduced, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(graph.operators[0].inputs[1].axes.size(), 2U);
  EXPECT_EQ(graph.tensor(graph.operators[0].outputs[1].tensor).dims.size(), 1U) << "one mean for each of the others";
  EXPECT_EQ(message_of("layernorm(x, v, w, axis=(0, 1))"), "a weight of shape [3] does not fit axes 0, 1 of [2, 3]");
  EXPECT_EQ(message_of("softmax(x, axis=())"), "'softmax' needs at least one axis");
  EXPECT_EQ(message_of("logsumexp(x, axis=(1, -1))"), "axis 1 is given twice");
}

TEST(Functions, NormalizationsWithoutWeights) {
  EXPECT_EQ(lowered("layernorm(x)"),
            "result[2, 3], result.mean[2], result.rstd[2] = layernorm(x[2, 3], 1, 0) over 3 eps=1e-05\n");
  EXPECT_EQ(lowered("layernorm(x, v)"), lowered("layernorm(x, v, None)"));
  EXPECT_EQ(lowered("layernorm(x, None, bias=v, eps=0.5)"),
            R"(result.1[2, 3], result.mean[2], result.rstd[2] = layernorm(x[2, 3], 1, 0) over 3 eps=0.5
result[2, 3] = add(result.1[2, 3], v[3])
)");
  EXPECT_EQ(lowered("rmsnorm(x)"), "result[2, 3], result.rstd[2] = rmsnorm(x[2, 3], 1) over 3 eps=1e-06\n");
  EXPECT_EQ(lowered("batchnorm(x, v)"),
            R"(result.1[2, 3], result.mean[3], result.rstd[3] = layernorm(x[2, 3], 1, 0) over 2 eps=1e-05
result[2, 3] = multiply(result.1[2, 3], v[3])
)");
  EXPECT_EQ(lowered("groupnorm(x, 1, bias=v)"),
            R"(result.1[2, 3], result.mean[2], result.rstd[2] = layernorm(x[2, 3], 1, 0) over 3 eps=1e-05
result[2, 3] = add(result.1[2, 3], v[3])
)");
  EXPECT_EQ(message_of("batchnorm(v)"), "'batchnorm' needs a tensor with at least two axes");
  EXPECT_EQ(message_of("batchnorm(x, c)"), "a weight of shape [2] does not fit axis 1 of [2, 3]");
  EXPECT_EQ(message_of("groupnorm(x, 2)"), "3 channels cannot form 2 groups");
  EXPECT_EQ(message_of("groupnorm(x, 3)"), "each group of this groupnorm is a single element");
}

// Otherwise a weight's gradient would miss the sum over its copies.
TEST(Functions, AWeightThatRepeatsIsCopied) {
  EXPECT_EQ(lowered("layernorm(x, np.repeat(c[:1], 3), v)"),
            R"(result.1[3] = copy(c[at 0])
result[2, 3], result.mean[2], result.rstd[2] = layernorm(x[2, 3], result.1[3], v[3]) over 3 eps=1e-05
)");
  EXPECT_EQ(lowered("rmsnorm(w, np.broadcast_to(v[0], (3,)))"),
            R"(result.1[3] = copy(v[at 0])
result[2, 3], result.rstd[2] = rmsnorm(w[2, 3], result.1[3]) over 3 eps=1e-06
)");
}

TEST(Functions, AProductMultipliesHalves) {
  EXPECT_EQ(lowered("np.prod(y, axis=-1)"),
            R"(result.1[3] = multiply(y[3, at 0], y[3, at 2])
result.1.2[3] = multiply(y[3, at 1], y[3, at 3])
result[3] = multiply(result.1[3], result.1.2[3])
)");
  EXPECT_EQ(lowered("np.prod(x, axis=(0, 1), keepdims=True)"), R"(result.1[1] = multiply(x[at 0, at 0], x[at 0, at 1])
result.1.3[1] = multiply(x[at 1, at 0], x[at 1, at 1])
result.1.2[1] = multiply(result.1[1], x[at 0, at 2])
result.1.2.2[1] = multiply(result.1.3[1], x[at 1, at 2])
result[1, 1'] = multiply(result.1.2[1'], result.1.2.2[1'])
)");
  EXPECT_EQ(lowered("x + np.prod(x.shape)"), "result[2, 3] = add(x[2, 3], 6)\n");
  EXPECT_EQ(message_of("np.prod(np.zeros((5, 13)))"), "this product has 65 factors");
}

TEST(Functions, ACumulativeSumIsAProductWithATriangle) {
  EXPECT_EQ(lowered("np.cumsum(v)"),
            R"(result.1[3] = index()
result.1.2[3] = index()
result.1.3[3, 3'] = less_equal(result.1.2[3'], result.1[3])
result.1.4[3, 3'] = where(result.1.3[3, 3'], 1, 0)
result[3] = contraction(v[3'], result.1.4[3, 3']) over 3'
)");
  EXPECT_EQ(lowered("np.cumsum(x, axis=0)"),
            R"(result.1[2] = index()
result.1.2[2] = index()
result.1.3[2, 2'] = less_equal(result.1.2[2'], result.1[2])
result.1.4[2, 2'] = where(result.1.3[2, 2'], 1, 0)
result[2, 3] = contraction(x[2', 3], result.1.4[2, 2']) over 2'
)");
  EXPECT_EQ(lowered("np.cumsum(x, axis=None)"), lowered("np.cumsum(np.ravel(x))"));
}

TEST(Functions, ProductsAreEinsums) {
  EXPECT_EQ(lowered("np.matmul(x, y)"), lowered("np.einsum('ij,jk->ik', x, y)"));
  EXPECT_EQ(lowered("np.matmul(x, v)"), lowered("np.einsum('ij,j->i', x, v)"));
  EXPECT_EQ(lowered("np.matmul(v, y)"), lowered("np.einsum('j,jk->k', v, y)"));
  EXPECT_EQ(lowered("np.matmul(v, v)"), lowered("np.einsum('j,j->', v, v)"));
  EXPECT_EQ(lowered("np.dot(x, y)"), lowered("np.matmul(x, y)"));
  EXPECT_EQ(lowered("np.dot(2, x)"), lowered("2 * x"));
  EXPECT_EQ(lowered("np.inner(x, w)"), lowered("np.einsum('ij,kj->ik', x, w)"));
  EXPECT_EQ(lowered("np.vdot(x, w)"), lowered("np.einsum('ij,ij->', x, w)"));
  EXPECT_EQ(lowered("np.outer(v, c)"), lowered("np.einsum('i,j->ij', v, c)"));
  EXPECT_EQ(lowered("np.tensordot(x, y, axes=1)"), lowered("np.matmul(x, y)"));
  EXPECT_EQ(lowered("np.tensordot(x, w)"), lowered("np.vdot(x, w)"));
  EXPECT_EQ(lowered("np.tensordot(x, w, axes=(0, 0))"), lowered("np.einsum('ia,ib->ab', x, w)"));
  EXPECT_EQ(lowered("np.tensordot(v, c, axes=0)"), lowered("np.outer(v, c)"));
}

TEST(Functions, MatmulBroadcastsLeadingAxes) {
  const std::string arguments = "def f(a: float32[5, 1, 2, 3], b: float32[4, 3, 2]):\n    return ";
  EXPECT_EQ(operators_of(arguments + "np.matmul(a, b)\n"),
            operators_of(arguments + "np.einsum('...mk,...kn->...mn', a, b)\n"));
  EXPECT_EQ(operators_of(arguments + "np.dot(a, b)\n"),
            operators_of(arguments + "np.einsum('abcd,xdy->abcxy', a, b)\n"));
}

TEST(Functions, ProductsNameWhatDoesNotFit) {
  EXPECT_EQ(message_of("np.matmul(x, w)"), "'matmul' of [2, 3] and [2, 3] would sum over 3 and 2 elements");
  EXPECT_EQ(message_of("np.matmul(x, 2)"), "'matmul' needs a tensor, not a number");
  EXPECT_EQ(message_of("np.outer(x, v)"), "np.outer of [2, 3] and [3] is not supported");
  EXPECT_EQ(message_of("np.vdot(x, y)"), "np.vdot of [2, 3] and [3, 4] is not supported");
  EXPECT_EQ(message_of("np.dot(x < 1, y)"), "a comparison is not a number");
  EXPECT_EQ(message_of("np.tensordot(x, y, axes=3)"),
            "np.tensordot's axes are neither a number of axes that both tensors have nor two lists of axes");
}

TEST(Functions, TensorsMadeOfNumbers) {
  EXPECT_EQ(lowered("np.zeros((2, 3))"), "result[2, 3] = copy(0)\n");
  EXPECT_EQ(lowered("np.full(4, 0.5)"), "result[4] = copy(0.5)\n");
  EXPECT_EQ(lowered("np.ones_like(y)"), "result[3, 4] = copy(1)\n");
  EXPECT_EQ(lowered("np.arange(3)"), "result[3] = index()\n");
  EXPECT_EQ(lowered("np.arange(1, 8, 2)"), R"(result.1[4] = index()
result.1.2[4] = multiply(result.1[4], 2)
result[4] = add(result.1.2[4], 1)
)");
  EXPECT_EQ(lowered("np.eye(2, 3)"), R"(result.1[2] = index()
result.1.2[3] = index()
result.1.3[2, 3] = equal(result.1[2], result.1.2[3])
result[2, 3] = where(result.1.3[2, 3], 1, 0)
)");
  EXPECT_EQ(lowered("np.tril(x, k=-1)"), R"(result.1[2] = index()
result.1.2[3] = index()
result.1.3[2, 1] = add(result.1[2], -1)
result.1.4[2, 3] = less_equal(result.1.2[3], result.1.3[2, 1])
result[2, 3] = where(result.1.4[2, 3], x[2, 3], 0)
)");
  EXPECT_EQ(lowered("np.triu(x)"), R"(result.1[2] = index()
result.1.2[3] = index()
result.1.3[2, 3] = less_equal(result.1[2], result.1.2[3])
result[2, 3] = where(result.1.3[2, 3], x[2, 3], 0)
)");
  EXPECT_EQ(message_of("np.zeros((2, 0))"), "the shape of 'zeros' is not made of positive integers");
  EXPECT_EQ(message_of("np.arange(3, 1)"), "np.arange from 3 to 1 in steps of 1 has no elements");
  EXPECT_EQ(message_of("np.tril(v)"), "'tril' needs a tensor with at least two axes");
}

// A library multiplies matrices of one type.
TEST(Functions, ProductsConvertTensorsMadeOfNumbers) {
  const Graph graph = graph_of("def f(x: bfloat16[2, 3]):\n    return np.matmul(x, np.ones((3, 4)))\n");
  EXPECT_EQ(names_of_operators(graph), "result broadcast, result copy, result einsum");
  for (const Access& input : graph.operators.back().inputs)
    EXPECT_EQ(graph.tensor(input.tensor).dtype, DType::bfloat16);
}

// Angles are computed in float32 and then take the type of what they multiply.
TEST(Functions, TensorsMadeOfNumbersDoNotWiden) {
  const Graph half = graph_of("def f(x: bfloat16[4]):\n    angle = np.sin(np.arange(4) / 8)\n    return angle * x\n");
  EXPECT_EQ(half.tensor(half.operators.front().outputs[0].tensor).dtype, DType::float32);
  EXPECT_EQ(half.tensor(half.results[0].tensor).dtype, DType::bfloat16);
  const Graph wide = graph_of("def f(x: float64[4]):\n    return np.sin(np.arange(4) / 8) * x\n");
  for (const Operator& op : wide.operators) EXPECT_EQ(wide.tensor(op.outputs[0].tensor).dtype, DType::float64);
}

}  // namespace
}  // namespace millrace
