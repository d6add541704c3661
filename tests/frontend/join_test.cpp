// Concatenation, stacking, padding and rolling: one operator that takes the input that is inside.
#include <gtest/gtest.h>

#include "frontend/program_text.h"

namespace millrace {
namespace {

TEST(Join, ConcatenationIsOneOperator) {
  EXPECT_EQ(operators_of(R"(
A = 2
B = 3
C = 4
def f(x: float32[A, B], y: float32[A, C]):
    return np.concatenate([x, y], axis=1), np.concatenate([x, x + 1, x]), np.concatenate([x, y], axis=None)
)"),
            "result_0[A, B:7] = join(x[A, B:7], y[A, B:7 - 3]) outside=0\n"
            "result_1.1[A, B] = add(x[A, B], 1)\n"
            "result_1[2·A:6.0 + A, B] = join(x[2·A:6.0 + A, B], result_1.1[2·A:6.0 + A - 2, B], x[2·A:6.0 + A - 4, B]) "
            "outside=0\n"
            "result_2.1[3·A + B] = copy(x[A, B])\n"
            "result_2.1.2[4·A + C] = copy(y[A, C])\n"
            "result_2[A*B:14] = join(result_2.1[A*B:14], result_2.1.2[A*B:14 - 6]) outside=0\n");
}

TEST(Join, AStackAddsAnIndex) {
  EXPECT_EQ(operators_of(R"(
A = 2
B = 3
def f(x: float32[A, B], y: float32[A, B], s: float32):
    return np.stack([x, y]), np.stack([x, y], axis=-1), np.stack([s, s])
)"),
            "result_0[2, A, B] = join(x[A, 3·2 + B], y[A, 3·2 + B - 3]) outside=0\n"
            "result_1[A, B, 2] = join(x[A, B + 3·2], y[A, B + 3·2 - 3]) outside=0\n"
            "result_2.1[1] = copy(s)\n"
            "result_2[A] = join(result_2.1[A], s) outside=0\n");
}

TEST(Join, PaddingIsAJoinWithAValueOutside) {
  EXPECT_EQ(operators_of(R"(
A = 2
B = 3
def f(x: float32[A, B]):
    return np.pad(x, ((0, 0), (1, 2))), np.pad(x, 1, constant_values=0.5), np.pad(x, ((1, 0), (0, 0))), np.pad(x, 0) + 1
)"),
            "result_0[A, B:6] = join(x[A, B:6 - 1]) outside=0\n"
            "result_1[A:4, B:5] = join(x[A:4 - 1, B:5 - 1]) outside=0.5\n"
            "result_2[A:3, B] = join(x[A:3 - 1, B]) outside=0\n"
            "result_3[A, B] = add(x[A, B], 1)\n");
}

TEST(Join, ARollIsAJoinOfTwoSlices) {
  EXPECT_EQ(operators_of(R"(
A = 5
B = 3
def f(x: float32[A, B]):
    return np.roll(x, 2, axis=0), np.roll(x, -1, axis=1), np.roll(x, 7), np.roll(x, (1, 1), axis=(0, 1))
)"),
            "result_0[A, B] = join(x[A + 3, B], x[A - 2, B]) outside=0\n"
            "result_1[A, B] = join(x[A, B + 1], x[A, 3·B - 6]) outside=0\n"
            "result_2.1[3·A + B] = copy(x[A, B])\n"
            "result_2[A, B] = join(result_2.1[3·A + B + 8], result_2.1[3·A + B - 7]) outside=0\n"
            "result_3.1[A, B] = join(x[at 4, 3·A + B], x[A - 1, B]) outside=0\n"
            "result_3[A, B] = join(result_3.1[A, 3·B + 2], result_3.1[A, B - 1]) outside=0\n");
}

// A slice would also be inside its tensor where the others are: it comes last.
TEST(Join, InputsAreOrderedSoThatTheFirstInsideIsRight) {
  EXPECT_EQ(operators_of(R"(
A = 7
B = 3
def f(x: float32[A], y: float32[B]):
    return np.concatenate([x[:4], y])
)"),
            "result[A] = join(y[A - 4], x[A]) outside=0\n");
}

TEST(Join, ASliceWithoutSuchAnOrderIsCopied) {
  EXPECT_EQ(operators_of(R"(
A = 9
def f(x: float32[A]):
    return np.concatenate([x[3:5], x[4:6], x[5:8]]), np.pad(x[2:5], 1)
)"),
            "result_0.1[A:2] = copy(x[A:2 + 3])\n"
            "result_0.1.2[A:2] = copy(x[A:2 + 4])\n"
            "result_0[A:7] = join(result_0.1[A:7], result_0.1.2[A:7 - 2], x[A:7 + 1]) outside=0\n"
            "result_1.1[A:3] = copy(x[A:3 + 2])\n"
            "result_1[A:5] = join(result_1.1[A:5 - 1]) outside=0\n");
}

TEST(Join, SplitMakesSlices) {
  EXPECT_EQ(operators_of(R"(
A = 6
B = 2
def f(x: float32[A, B]):
    a, b, c = np.split(x, 3)
    d, e = np.split(x, [4])
    return a + b * c, d + 1, e + 1
)"),
            "result_0.1[A:2, B] = multiply(x[A:2 + 2, B], x[A:2 + 4, B])\n"
            "result_0[A:2, B] = add(x[A:2, B], result_0.1[A:2, B])\n"
            "result_1[A:4, B] = add(x[A:4, B], 1)\n"
            "result_2[A:2, B] = add(x[A:2 + 4, B], 1)\n");
}

}  // namespace
}  // namespace millrace
