// Backward operators from program text. tests/random/ and models_test.py check their values.
#include <gtest/gtest.h>

#include "autodiff/backward_text.h"

namespace millrace {
namespace {

TEST(Differentiate, AMatrixProductGivesAContractionForEachOperand) {
  constexpr std::string_view program = R"(
A = 2
B = 3
C = 5
D = 7
def f(a: float32[A, B], b: float32[B, C], c: float32[C, D]):
    ab = np.einsum("ab,bc->ac", a, b)
    return np.einsum("ac,cd->ad", ab, c)
)";
  EXPECT_EQ(backward_of(program),
            "d_ab[A, C] = contraction(c[C, D], d_result[A, D]) over D\n"
            "d_c[C, D] = contraction(d_result[A, D], ab[A, C]) over A\n"
            "d_a[A, B] = contraction(b[B, C], d_ab[A, C]) over C\n"
            "d_b[B, C] = contraction(d_ab[A, C], a[A, B]) over A\n");
  EXPECT_EQ(decisions_of(program),
            "gradient a = d_a\n"
            "gradient b = d_b\n"
            "gradient c = d_c\n"
            "kept for backward\n"
            "  a: given, 6 words, for ab einsum d_b\n"
            "  b: given, 15 words, for ab einsum d_a\n"
            "  c: given, 35 words, for result einsum d_ab\n"
            "  ab: saved, 10 words, for result einsum d_c\n");
}

TEST(Differentiate, ABiasIsSummedOverItsBroadcastIndices) {
  EXPECT_EQ(backward_of(R"(
A = 2
B = 3
def f(x: float32[A, B], b: float32[B], c: float32[A], d: float32[1, B]):
    return np.exp(x + b + c[:, None] + d)
)"),
            "d_x[A, B] = multiply(d_result[A, B], result[A, B])\n"
            "d_d[1, B] = sum(d_x[A, B]) over A\n"
            "d_c[A] = sum(d_x[A, B]) over B\n"
            "d_b[B] = sum(d_x[A, B]) over A\n");
}

TEST(Differentiate, ABroadcastFactorIsMultipliedThenSummed) {
  EXPECT_EQ(backward_of("A = 2\nB = 3\ndef f(x: float32[A, B], w: float32[B]):\n    return x * w\n"),
            "d_x[A, B] = multiply(d_result[A, B], w[B])\n"
            "d_w[A, B] = multiply(d_result[A, B], x[A, B])\n"
            "d_w.2[B] = sum(d_w[A, B]) over A\n");
}

TEST(Differentiate, TheGradientOfAGatherIsSummedWhereItsIdsPoint) {
  EXPECT_EQ(backward_of(R"(
V = 5
E = 3
B = 2
def f(table: float32[V, E], ids: int32[B], x: float32[B, V], labels: int32[B]):
    return table[ids], np.take_along_axis(x, labels[:, None], axis=1)
)"),
            "d_x[B, V] = scatter_add(d_result_1[B, 1], labels[B]) over 1 at V\n"
            "d_table[V, E] = scatter_add(d_result_0[B, E], ids[B]) over B at V\n");
}

TEST(Differentiate, TheGradientOfADiagonalIsEmbeddedInTheDiagonal) {
  EXPECT_EQ(backward_of(R"(
I = 3
K = 2
def f(x: float32[I, I], y: float32[I, K, I]):
    return np.einsum("ii->i", x), np.einsum("iki->k", y)
)"),
            "d_result_1.1[I, K] = copy(d_result_1[K])\n"
            "d_y[I, K, I'] = embed_diagonal(d_result_1.1[I, K]) diagonal=0,1,0\n"
            "d_x[I, I'] = embed_diagonal(d_result_0[I]) diagonal=0,0\n");
}

TEST(Differentiate, GradientsThatMeetAreSummedInTheOrderOfForward) {
  EXPECT_EQ(backward_of(R"(
def f(x: float32[4]):
    a = np.exp(x)
    b = np.tanh(x)
    c = np.log(x)
    return a, b, c
)"),
            "d_x[4] = divide(d_c[4], x[4])\n"
            "d_x.2[4] = tanh_dx(b[4], d_b[4])\n"
            "d_x.3[4] = multiply(d_a[4], a[4])\n"
            "d_x.sum[4] = add(d_x.3[4], d_x.2[4])\n"
            "d_x.sum.2[4] = add(d_x.sum[4], d_x[4])\n");
}

TEST(Differentiate, AScaleStaysInTheGradients) {
  EXPECT_EQ(backward_of(R"(
def f(x: float32[2, 3], y: float32[3, 4], s: float32):
    return s * np.einsum("ij,jk->ik", x, y) / 4
)"),
            "d_x[2, 3] = contraction(y[3, 4], d_result[2, 4], s, 1/4) over 4\n"
            "d_y[3, 4] = contraction(d_result[2, 4], x[2, 3], s, 1/4) over 2\n");
}

TEST(Differentiate, AContractionWithoutReducedIndicesIsAProduct) {
  EXPECT_EQ(backward_of("def f(x: float32[2, 3], y: float32[3]):\n    return 5 * np.einsum(\"ij,j->i\", x, y)\n"),
            "d_x[2, 3] = multiply(y[3], d_result[2])\n"
            "d_x.2[2, 3] = multiply(d_x[2, 3], 5)\n"
            "d_y[3] = contraction(d_result[2], x[2, 3], 5) over 2\n");
}

TEST(Differentiate, AnUnusedArgumentHasAGradientOfZero) {
  constexpr std::string_view program = "def f(x: float32[4], unused: float32[2, 3], s: float32):\n    return s * x\n";
  EXPECT_EQ(backward_of(program), "d_x[4] = multiply(d_result[4], s)\nd_unused[2, 3] = copy(0)\n");
  EXPECT_EQ(decisions_of(program), "gradient x = d_x\ngradient unused = d_unused\n") << "scalars have none";
}

TEST(Differentiate, AFixedArgumentHasNoGradient) {
  constexpr std::string_view program =
      "def f(x: float32[4], mask: fixed.float32[4], other: np.fixed.float32[4]):\n    return x * mask + "
      "np.exp(other)\n";
  EXPECT_EQ(backward_of(program), "d_x[4] = multiply(d_result[4], mask[4])\n");
  EXPECT_EQ(decisions_of(program).find("d_mask"), std::string::npos);
  EXPECT_EQ(decisions_of(program).find("d_other"), std::string::npos);
}

TEST(Differentiate, AnArgumentReturnedDirectly) {
  EXPECT_EQ(backward_of("def f(x: float32[4]):\n    return x\n"), "d_x.2[4] = copy(d_x[4])\n");
  EXPECT_EQ(backward_of("def f(x: float32[4], y: float32[4]):\n    return x, y + x\n"),
            "d_x.sum[4] = add(d_result_1[4], d_x[4])\nd_y[4] = copy(d_result_1[4])\n");
}

TEST(Differentiate, TheSameTensorAsBothOperands) {
  EXPECT_EQ(backward_of("I = 3\nJ = 2\nK = 3\ndef f(x: float32[I, J]):\n    return np.einsum(\"ij,kj->ik\", x, x)\n"),
            "d_x[I, J] = contraction(x[K, J], d_result[I, K]) over K\n"
            "d_x.2[K, J] = contraction(d_result[I, K], x[I, J]) over I\n"
            "d_x.sum[I, J] = add(d_x.2[I, J], d_x[I, J])\n");
  EXPECT_EQ(backward_of("def f(x: float32[4]):\n    return x * x\n"),
            "d_x[4] = multiply(d_result[4], x[4])\n"
            "d_x.2[4] = multiply(d_result[4], x[4])\n"
            "d_x.sum[4] = add(d_x.2[4], d_x[4])\n");
}

TEST(Differentiate, SumsAreBroadcastAndTransposesInverted) {
  EXPECT_EQ(backward_of("def f(x: float32[3, 2]):\n    return np.sum(x, axis=0), np.einsum(\"ij->ji\", x)\n"),
            "d_x[3, 2] = copy(d_result_1[2, 3])\n"
            "d_x.2[3, 2] = copy(d_result_0[2])\n"
            "d_x.sum[3, 2] = add(d_x.2[3, 2], d_x[3, 2])\n");
}

TEST(Differentiate, AMaximumSharesItsGradientAmongEquals) {
  EXPECT_EQ(backward_of("I = 3\nJ = 2\ndef f(x: float32[I, J]):\n    return np.max(x, axis=1), np.min(x, axis=0)\n"),
            "d_x[I, J] = extremum_dx(x[I, J], result_1[J], d_result_1[J]) over I\n"
            "d_x.2[I, J] = extremum_dx(x[I, J], result_0[I], d_result_0[I]) over J\n"
            "d_x.sum[I, J] = add(d_x.2[I, J], d_x[I, J])\n");
}

TEST(Differentiate, WherePassesTheGradientToOneSide) {
  EXPECT_EQ(backward_of("def f(x: float32[3, 2], y: float32[3, 1]):\n    return np.where(x < y, x, y)\n"),
            "d_x[3, 2] = where(result.1[3, 2], d_result[3, 2], 0)\n"
            "d_y[3, 2] = where(result.1[3, 2], 0, d_result[3, 2])\n"
            "d_y.2[3, 1] = sum(d_y[3, 2]) over 2\n");
  EXPECT_EQ(backward_of("def f(x: float32[4]):\n    return np.maximum(x, 0)\n"),
            "d_x[4] = less(0, x[4])\n"
            "d_x.2[4] = where(d_x[4], d_result[4], 0)\n");
}

TEST(Differentiate, NormalizationsHaveSeparateDxAndDw) {
  EXPECT_EQ(backward_of(R"(
I = 3
J = 2
def f(x: float32[I, J], w: float32[J], b: float32[J], v: float32[I]):
    return rmsnorm(layernorm(softmax(x), w, b), v, axis=0)
)"),
            "d_v[I] = rmsnorm_dw(result.1.2[I, J], result.rstd.2[J], d_result[I, J]) over J\n"
            "d_result.1.2[I, J] = rmsnorm_dx(result.1.2[I, J], v[I], result.rstd.2[J], d_result[I, J]) over I\n"
            "d_w[J], d_b[J] = layernorm_dw(result.1[I, J], result.mean[I], result.rstd[I], d_result.1.2[I, J]) over I\n"
            "d_result.1[I, J] = layernorm_dx(result.1[I, J], w[J], result.mean[I], result.rstd[I], d_result.1.2[I, J])"
            " over J\n"
            "d_x[I, J] = softmax_dx(result.1[I, J], d_result.1[I, J]) over J\n");
}

TEST(Differentiate, ADropoutReusesItsMask) {
  EXPECT_EQ(backward_of("def f(x: float32[4]):\n    return dropout(x)\n"),
            "d_x[4] = dropout_dx(result.mask[4], d_result[4])\n");
}

}  // namespace
}  // namespace millrace
