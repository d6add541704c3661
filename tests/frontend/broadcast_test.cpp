// NumPy's broadcasting, and indexing that adds axes: neither moves data.
#include <gtest/gtest.h>

#include "frontend/program_text.h"

namespace millrace {
namespace {

TEST(Broadcast, ShapesMeetFromTheRight) {
  EXPECT_EQ(operators_of(R"(
A = 4
B = 5
def f(x: float32[A, B], y: float32[B], z: float32[1, B], s: float32):
    return x + y, y * x, x + z, s * x, z + y
)"),
            "result_0[A, B] = add(x[A, B], y[B])\n"
            "result_1[A, B] = multiply(y[B], x[A, B])\n"
            "result_2[A, B] = add(x[A, B], z[1, B])\n"
            "result_3[A, B] = multiply(s, x[A, B])\n"
            "result_4[1, B] = add(z[1, B], y[B])\n");
}

TEST(Broadcast, BothSidesMayStretch) {
  EXPECT_EQ(operators_of("def f(x: float32[4, 1], y: float32[1, 5]):\n    return x - y\n"),
            "result[4, 5] = subtract(x[4, 1], y[1, 5])\n");
}

TEST(Broadcast, NoneAddsAnAxis) {
  EXPECT_EQ(operators_of("def f(x: float32[4, 5], b: float32[4]):\n    return x * b[:, None]\n"),
            "result[4, 5] = multiply(x[4, 5], b[4])\n");
  EXPECT_EQ(operators_of("def f(x: float32[4], y: float32[5]):\n    return x[:, np.newaxis] * y[None]\n"),
            "result[4, 5] = multiply(x[4], y[5])\n");
}

TEST(Broadcast, AnEllipsisTakesTheRemainingAxes) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[4, 5, 6], b: float32[5]):
    y = x + b[None, ..., None]
    z = y[..., None] * y[:, ..., None]
    return z[...]
)"),
            "y[4, 5, 6] = add(x[4, 5, 6], b[5])\n"
            "z[4, 5, 6, 1] = multiply(y[4, 5, 6], y[4, 5, 6])\n");
}

TEST(Broadcast, ThreeInputsMeetInWhere) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[4, 5], y: float32[5], z: float32[4]):
    return np.where(x > y, z[:, None], 0), np.where(y <= 1, y, x)
)"),
            "result_0.1[4, 5] = less(y[5], x[4, 5])\n"
            "result_0[4, 5] = where(result_0.1[4, 5], z[4], 0)\n"
            "result_1.1[5] = less_equal(y[5], 1)\n"
            "result_1[4, 5] = where(result_1.1[5], y[5], x[4, 5])\n");
}

TEST(Broadcast, ReductionsDropOrKeepTheirAxes) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[4, 5]):
    a = np.sum(x)
    b = np.mean(x, axis=0)
    c = np.max(x, axis=0, keepdims=True)
    d = np.min(x, -1)
    e = np.sum(x, axis=(0, -1), keepdims=True)
    return a, b, c, d, e, x - np.mean(x, axis=1, keepdims=True)
)"),
            "a = sum(x[4, 5]) over 4, 5\n"
            "b.1[5] = sum(x[4, 5]) over 4\n"
            "b[5] = multiply(b.1[5], 0.25)\n"
            "c[1, 5] = max(x[4, 5]) over 4\n"
            "d[4] = min(x[4, 5]) over 5\n"
            "e[1, 1] = sum(x[4, 5]) over 4, 5\n"
            "result_5.1[4, 1] = sum(x[4, 5]) over 5\n"
            "result_5.1.2[4, 1] = multiply(result_5.1[4, 1], 0.20000000000000001)\n"
            "result_5[4, 5] = subtract(x[4, 5], result_5.1.2[4, 1])\n");
}

TEST(Broadcast, NormalizationsRunAlongOneAxis) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[4, 5], w: float32[4], v: float32[5]):
    return softmax(x), softmax(x, axis=0), layernorm(x, w, w, axis=0, eps=0.5), rmsnorm(x, v)
)"),
            "result_0[4, 5] = softmax(x[4, 5]) over 5\n"
            "result_1[4, 5] = softmax(x[4, 5]) over 4\n"
            "result_2[4, 5], result_2.mean[5], result_2.rstd[5] = layernorm(x[4, 5], w[4], w[4]) over 4 eps=0.5\n"
            "result_3[4, 5], result_3.rstd[4] = rmsnorm(x[4, 5], v[5]) over 5 eps=1e-06\n");
}

TEST(Broadcast, EveryDropoutHasItsOwnStream) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[4]):
    a = dropout(x)
    b = dropout(x, 0)
    return a, b * dropout(b, p=0.5)
)"),
            "a[4], a.mask[4] = dropout(x[4]) p=0.1 subsequence=0\n"
            "result_1.1[4], result_1.mask[4] = dropout(x[4]) p=0.5 subsequence=2\n"
            "result_1[4] = multiply(x[4], result_1.1[4])\n");
}

}  // namespace
}  // namespace millrace
