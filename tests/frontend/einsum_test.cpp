// np.einsum from text to operators. random_programs_test.py checks that they compute the same as NumPy.
#include <gtest/gtest.h>

#include "frontend/program_text.h"

namespace millrace {
namespace {

TEST(Einsum, OneOperandIsAViewOrASum) {
  EXPECT_EQ(printed(R"(
def f(x: float32[4, 5]):
    return np.einsum("ij->j", x), np.einsum("ij->", x), np.exp(np.einsum("ij->ji", x))
)"),
            R"(program f
argument x: float32[4, 5]
forward
  result_0[5] = sum(x[4, 5]) over 4
  result_1 = sum(x[4, 5]) over 4, 5
  result_2[5, 4] = exp(x[4, 5])
result result_0
result result_1
result result_2
)");
}

TEST(Einsum, ARepeatedLetterTakesTheDiagonal) {
  EXPECT_EQ(operators_of(R"(
I = 4
def f(x: float32[I, I], y: float32[I, 3, I]):
    return np.einsum("ii->i", x), np.einsum("ii->", x), np.einsum("ii,iki->k", x, y)
)"),
            "result_0[I] = copy(x[I, I])\n"
            "result_1.1[I] = copy(x[I, I])\n"
            "result_1 = sum(result_1.1[I]) over I\n"
            "result_2.1[I] = copy(x[I, I])\n"
            "result_2.1.2[I, 3] = copy(y[I, 3, I])\n"
            "result_2[3] = contraction(result_2.1[I], result_2.1.2[I, 3]) over I\n");
}

TEST(Einsum, WithoutAnArrowTheResultHasTheLettersThatOccurOnce) {
  EXPECT_EQ(operators_of("def f(x: float32[4, 5], y: float32[5, 3]):\n    return np.einsum(\"zj,jc\", x, y)\n"),
            "result[3, 4] = contraction(x[4, 5], y[5, 3]) over 5\n");
  EXPECT_EQ(operators_of("def f(x: float32[4, 4]):\n    return np.einsum(\"ii\", x)\n"),
            "result.1[4] = copy(x[4, 4])\nresult = sum(result.1[4]) over 4\n");
  EXPECT_EQ(operators_of("def f(x: float32[4, 5]):\n    return np.einsum(\"ba\", x)\n"),
            "result.1[5, 4] = copy(x[4, 5])\n");
}

TEST(Einsum, AnEllipsisBroadcastsFromTheRight) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[2, 3, 4, 5], y: float32[3, 5, 6], z: float32[5, 6]):
    return np.einsum("...ij,...jk->...ik", x, y), np.einsum("...j,jk", x, z), np.einsum("i...->...", x)
)"),
            "result_0[2, 3, 4, 6] = contraction(x[2, 3, 4, 5], y[3, 5, 6]) over 5\n"
            "result_1[2, 3, 4, 6] = contraction(x[2, 3, 4, 5], z[5, 6]) over 5\n"
            "result_2[3, 4, 5] = sum(x[2, 3, 4, 5]) over 2\n");
}

TEST(Einsum, AnAxisOfExtentOneIsBroadcast) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[4, 1], y: float32[5, 3], z: float32[1, 3]):
    return np.einsum("ij,ij->ij", y, z), np.einsum("ij,ij->i", y, z), np.einsum("ij,jk->ik", x, y)
)"),
            "result_0[5, 3] = multiply(y[5, 3], z[1, 3])\n"
            "result_1[5] = contraction(y[5, 3], z[1, 3]) over 3\n"
            "result_2.1[3] = sum(y[5, 3]) over 5\n"
            "result_2[4, 3] = multiply(x[4, 1], result_2.1[3])\n");
}

TEST(Einsum, AnAddedAxisMayBeNamed) {
  EXPECT_EQ(
      operators_of("def f(x: float32[4], y: float32[4, 3]):\n    return np.einsum(\"ij,jk->ik\", x[None, :], y)\n"),
      "result[1, 3] = contraction(x[4], y[4, 3]) over 4\n");
}

TEST(Einsum, WithoutContractedIndicesItIsAProduct) {
  EXPECT_EQ(operators_of("def f(x: float32[4], y: float32[5]):\n    return np.einsum(\"i,j->ji\", x, y)\n"),
            "result[5, 4] = multiply(x[4], y[5])\n");
}

TEST(Einsum, IndicesOfOneOperandAreSummedFirst) {
  EXPECT_EQ(operators_of("def f(x: float32[4, 7], y: float32[4, 5]):\n    return np.einsum(\"ij,ik->k\", x, y)\n"),
            "result.1[4] = sum(x[4, 7]) over 7\n"
            "result[5] = contraction(result.1[4], y[4, 5]) over 4\n");
}

TEST(Einsum, OfThreeOperandsTheCheaperPairGoesFirst) {
  constexpr std::string_view program = R"(
A = 100
B = 2
C = 100
D = 3
def f(x: float32[A, B], y: float32[B, C], z: float32[C, D]):
    return np.einsum("ab,bc,cd->ad", x, y, z)
)";
  EXPECT_EQ(operators_of(program),  // 600 + 600 multiplications, not 20,000 + 30,000
            "result.1[B, D] = contraction(y[B, C], z[C, D]) over C\n"
            "result[A, D] = contraction(x[A, B], result.1[B, D]) over B\n");
  EXPECT_EQ(operators_of(program, with_sizes({"A=2", "B=100", "C=3", "D=100"})),
            "result.1[A, C] = contraction(x[A, B], y[B, C]) over B\n"
            "result[A, D] = contraction(result.1[A, C], z[C, D]) over C\n");
}

TEST(Einsum, OfFourOperandsTheCheapestPairGoesFirstEachTime) {
  EXPECT_EQ(operators_of(R"(
A = 11
B = 7
C = 2
D = 3
E = 5
def f(x: float32[A, B], y: float32[B, C], z: float32[C, D], w: float32[D, E]):
    return np.einsum("ab,bc,cd,de->ae", x, y, z, w)
)"),
            "result.1[C, E] = contraction(z[C, D], w[D, E]) over D\n"           // 30
            "result.1.2[B, E] = contraction(y[B, C], result.1[C, E]) over C\n"  // 70, not 154
            "result[A, E] = contraction(x[A, B], result.1.2[B, E]) over B\n");
}

TEST(Einsum, ScalarsScaleTheResult) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[4], y: float32[4], s: float32, t: float32):
    return np.einsum("i,->i", x, s), np.einsum(",i,i->", s, x, y), np.einsum(",->", s, t), np.einsum("i,->", x, 3)
)"),
            "result_0[4] = multiply(s, x[4])\n"
            "result_1 = contraction(x[4], y[4], s) over 4\n"
            "result_2 = multiply(t, s)\n"
            "result_3.1 = sum(x[4]) over 4\n"
            "result_3 = multiply(3, result_3.1)\n");
}

TEST(Einsum, ALetterNamesItsAxisWhereASizeOfThatNameFits) {
  EXPECT_EQ(operators_of(R"(
B = 2
I = 4
J = K = 6
def f(q: float32[B, J, I], k: float32[B, J, I]):
    return np.einsum("bji,bki->bjk", q, k)
)"),
            "result[B, J, K] = contraction(q[B, J, I], k[B, K, I]) over I\n");
  EXPECT_EQ(operators_of("K = 7\nJ = 5\ndef f(x: float32[4, J]):\n    return np.einsum(\"ij,kj->ik\", x, x)\n"),
            "result[4, 4'] = contraction(x[4, J], x[4', J]) over J\n")
      << "K is 7 and the axis 4: they have nothing to do with each other";
}

TEST(Einsum, SpacesInSubscriptsMeanNothing) {
  EXPECT_EQ(operators_of("def f(x: float32[4, 5]):\n    return np.einsum(\" i j , k j -> i k \", x, x)\n"),
            "result[4, 4'] = contraction(x[4, 5], x[4', 5]) over 5\n");
}

}  // namespace
}  // namespace millrace
