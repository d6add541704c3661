// Scalings that fold into the contraction before them (paper, section A.5.1), and scalings that must not.
#include <gtest/gtest.h>

#include "frontend/program_text.h"

namespace millrace {
namespace {

TEST(Fold, AScaleFoldsIntoItsContraction) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[4, 5], y: float32[5, 6], s: float32):
    a = s * np.einsum("ij,jk->ik", x, y)
    b = np.einsum("ij,jk->ik", x, y) * 3
    return a, b
)"),
            "a[4, 6] = contraction(x[4, 5], y[5, 6], s) over 5\n"
            "b[4, 6] = contraction(x[4, 5], y[5, 6], 3) over 5\n");
}

TEST(Fold, ADivisionByAConstantIsItsReciprocal) {
  const Graph graph = graph_of("def f(x: float32[4, 5]):\n    return np.einsum(\"ij,kj->ik\", x, x) / 8\n");
  ASSERT_EQ(graph.operators.size(), 1U);
  EXPECT_EQ(print(graph, graph.operators[0]), "result[4, 4'] = contraction(x[4, 5], x[4', 5], 1/8) over 5");
  EXPECT_EQ(graph.tensor(graph.operators[0].inputs[2].tensor).value, 0.125);
}

TEST(Fold, ChainsOfScalesAllFold) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[4, 5], s: float32):
    y = np.einsum("ij,kj->ik", x, x)
    z = y * 2 / 4
    return s * z
)"),
            "result[4, 4'] = contraction(x[4, 5], x[4', 5], 2, 1/4, s) over 5\n");
}

TEST(Fold, NotWhenTheContractionIsReadTwice) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[4, 5]):
    a = np.einsum("ij,kj->ik", x, x)
    b = 2 * a
    return a + b
)"),
            "a[4, 4'] = contraction(x[4, 5], x[4', 5]) over 5\n"
            "b[4, 4'] = multiply(2, a[4, 4'])\n"
            "result[4, 4'] = add(a[4, 4'], b[4, 4'])\n");
}

TEST(Fold, NotWhenTheContractionIsAResult) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[4, 5]):
    a = np.einsum("ij,kj->ik", x, x)
    return a, 2 * a
)"),
            "a[4, 4'] = contraction(x[4, 5], x[4', 5]) over 5\n"
            "result_1[4, 4'] = multiply(2, a[4, 4'])\n");
}

TEST(Fold, NotAfterATransposeOrANewAxis) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[4, 5], y: float32[5, 6]):
    a = np.einsum("ij,jk->ik", x, y)
    b = np.einsum("ij,jk->ik", x, y)
    return 2 * np.einsum("ik->ki", a), 2 * b[None]
)"),
            "a[4, 6] = contraction(x[4, 5], y[5, 6]) over 5\n"
            "b[4, 6] = contraction(x[4, 5], y[5, 6]) over 5\n"
            "result_0[6, 4] = multiply(2, a[4, 6])\n"
            "result_1[1, 4, 6] = multiply(2, b[4, 6])\n");
}

TEST(Fold, NotWhatOnlyLooksLikeAScale) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[4, 5], y: float32[5, 6], t: float32[6], s: float32):
    a = t * np.einsum("ij,jk->ik", x, y)
    b = np.einsum("ij,jk->ik", x, y) / s
    c = 2 / np.einsum("ij,jk->ik", x, y)
    d = 2 * np.einsum("ij->i", x)
    return a, b, c, d
)"),
            "a.1[4, 6] = contraction(x[4, 5], y[5, 6]) over 5\n"
            "a[4, 6] = multiply(t[6], a.1[4, 6])\n"
            "b.1[4, 6] = contraction(x[4, 5], y[5, 6]) over 5\n"
            "b[4, 6] = divide(b.1[4, 6], s)\n"
            "c.1[4, 6] = contraction(x[4, 5], y[5, 6]) over 5\n"
            "c[4, 6] = divide(2, c.1[4, 6])\n"
            "d.1[4] = sum(x[4, 5]) over 5\n"
            "d[4] = multiply(2, d.1[4])\n");
}

}  // namespace
}  // namespace millrace
