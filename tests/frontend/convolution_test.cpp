// Convolutions, pooling and normalization by groups of channels: paddings, views of windows, and one operator over
// them.
#include <gtest/gtest.h>

#include "frontend/program_text.h"

namespace millrace {
namespace {

TEST(Convolution, WindowsArePositionsOfAProduct) {
  EXPECT_EQ(operators_of(R"(
B = 2
C = 3
T = 9
O = 5
K = 4
def f(x: float32[B, C, T], w: float32[O, C, K], b: float32[O]):
    return conv1d(x, w), conv1d(x, w, b, stride=2, padding=1)
)"),
            "result_0[B, O, T:6] = contraction(x[B, C, T:6 + K], w[O, C, K]) over C, K\n"
            "result_1.1[B, C, T:11] = join(x[B, C, T:11 - 1] for T:11 in 1..9) outside=0\n"
            "result_1.1.2[B, O, T:4] = contraction(result_1.1[B, C, 2·T:4 + K], w[O, C, K]) over C, K\n"
            "result_1[B, O, T:4] = add(result_1.1.2[B, O, T:4], b[O])\n");
}

TEST(Convolution, TwoAxesShareStrideAndPadding) {
  EXPECT_EQ(operators_of(R"(
B = 2
C = 3
Y = 7
X = 9
O = 5
K = 3
def f(x: float32[B, C, Y, X], w: float32[O, C, K, K], patch: float32[O, C, 2, 2]):
    return conv2d(x, w, padding=1), conv2d(x, patch, stride=2)
)"),
            "result_0.1[B, C, Y:9, X:11] = join(x[B, C, Y:9 - 1, X:11 - 1] for Y:9 in 1..7 and X:11 in 1..9) "
            "outside=0\n"
            "result_0[B, O, Y, X] = contraction(result_0.1[B, C, Y + Y:3, X + X:3], w[O, C, Y:3, X:3]) over C, Y:3, "
            "X:3\n"
            "result_1[B, O, Y:3, X:4] = contraction(x[B, C, 2·Y:3 + Y:2, 2·X:4 + X:2], patch[O, C, Y:2, X:2]) over C, "
            "Y:2, X:2\n");
}

TEST(Convolution, DepthwiseKeepsTheChannels) {
  EXPECT_EQ(operators_of(R"(
B = 2
C = 3
T = 8
X = 9
K = 4
def f(t: float32[B, C, T], x: float32[B, C, T, X], w: float32[C, K], v: float32[C, K, K], b: float32[C]):
    return depthwise(t, w, b), depthwise(x, v, stride=3)
)"),
            "result_0.1[B, C, T:5] = contraction(t[B, C, T:5 + K], w[C, K]) over K\n"
            "result_0[B, C, T:5] = add(result_0.1[B, C, T:5], b[C])\n"
            "result_1[B, C, T:2, X:2] = contraction(x[B, C, 3·T:2 + K, 3·X:2 + X:4], v[C, K, X:4]) over K, X:4\n");
}

TEST(Convolution, PoolingReducesWindows) {
  EXPECT_EQ(operators_of(R"(
B = 2
C = 3
Y = 6
X = 8
def f(x: float32[B, C, Y, X]):
    return max_pool2d(x, 2), max_pool2d(x, 3, stride=2, padding=1), avg_pool2d(x, 2, None, 1)
)"),
            "result_0[B, C, Y:3, X:4] = max(x[B, C, 2·Y:3 + Y:2, 2·X:4 + X:2]) over Y:2, X:2\n"
            "result_1.1[B, C, Y:8, X:10] = join(x[B, C, Y:8 - 1, X:10 - 1] for Y:8 in 1..6 and X:10 in 1..8) "
            "outside=-inf\n"
            "result_1[B, C, Y:3, X:4] = max(result_1.1[B, C, 2·Y:3 + Y:3', 2·X:4 + X:3]) over Y:3', X:3\n"
            "result_2.1[B, C, Y:8, X:10] = join(x[B, C, Y:8 - 1, X:10 - 1] for Y:8 in 1..6 and X:10 in 1..8) "
            "outside=0\n"
            "result_2.1.2[B, C, Y:4, X:5] = sum(result_2.1[B, C, 2·Y:4 + Y:2, 2·X:5 + X:2]) over Y:2, X:2\n"
            "result_2[B, C, Y:4, X:5] = multiply(result_2.1.2[B, C, Y:4, X:5], 0.25)\n");
}

TEST(Convolution, GroupsOfChannelsAreAnAxis) {
  EXPECT_EQ(operators_of(R"(
B = 2
C = 6
T = 5
def f(x: float32[B, C, T], w: float32[C], b: float32[C]):
    return groupnorm(x, 3, w, b), groupnorm(x, 2)
)"),
            "result_0.1[B, C.0, C.1, T], result_0.mean[B, C.0], result_0.rstd[B, C.0] = layernorm(x[B, 2·C.0 + C.1, "
            "T], 1, 0) over C.1, T eps=1e-05\n"
            "result_0.1.2[B, C.0, C.1, T] = multiply(result_0.1[B, C.0, C.1, T], w[2·C.0 + C.1])\n"
            "result_0[B, 2·C.0 + C.1, T] = add(result_0.1.2[B, C.0, C.1, T], b[2·C.0 + C.1])\n"
            "result_1[B, 3·C.0 + C.1, T], result_1.mean[B, C.0], result_1.rstd[B, C.0] = layernorm(x[B, 3·C.0 + C.1, "
            "T], 1, 0) over C.1, T eps=1e-05\n");
}

}  // namespace
}  // namespace millrace
