// Convolutions, pooling and normalization by groups of channels: paddings, views of windows, and one operator over them.
#include <gtest/gtest.h>

#include "frontend/program_text.h"

namespace millrace {
namespace {

TEST(Convolution, WindowsArePositionsOfAProduct) {
  EXPECT_EQ(operators_of(R"(
B = 2
C = 3
T = 8
O = 5
K = 4
def f(x: float32[B, C, T], w: float32[O, C, K], b: float32[O]):
    return conv1d(x, w), conv1d(x, w, b, stride=2, padding=1)
)"),
            "?");
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
            "?");
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
            "?");
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
            "?");
}

TEST(Convolution, GroupsOfChannelsAreAnAxis) {
  EXPECT_EQ(operators_of(R"(
B = 2
C = 6
T = 5
def f(x: float32[B, C, T], w: float32[C], b: float32[C]):
    return groupnorm(x, 3, w, b), groupnorm(x, 2)
)"),
            "?");
}

}  // namespace
}  // namespace millrace
