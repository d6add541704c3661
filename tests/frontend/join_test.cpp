// Concatenation, stacking, padding and rolling: one operator with a region for each input.
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
            "result_0[A, B:7] = join(x[A, B:7] for B:7 in 0..2, y[A, B:7 - 3] for B:7 in 3..6) outside=0\n"
            "result_1.1[A.0, A, B] = add(x[2·A.0 + A, B], 1)\n"
            "result_1[2·A:6.0 + A, B] = join(x[2·A:6.0 + A, B] for A:6.0 in 0..0, result_1.1[A:6.0 - 1, A, B] for "
            "A:6.0 in 1..1, x[2·A:6.0 + A - 4, B] for A:6.0 in 2..2) outside=0\n"
            "result_2.1[3·A + B] = copy(x[A, B])\n"
            "result_2.1.2[4·A + C] = copy(y[A, C])\n"
            "result_2[A*B:14] = join(result_2.1[A*B:14] for A*B:14 in 0..5, result_2.1.2[A*B:14 - 6] for A*B:14 in "
            "6..13) outside=0\n");
}

TEST(Join, AStackAddsAnIndex) {
  EXPECT_EQ(operators_of(R"(
A = 2
B = 3
def f(x: float32[A, B], y: float32[A, B], s: float32):
    return np.stack([x, y]), np.stack([x, y], axis=-1), np.stack([s, s])
)"),
            "result_0[2, A, B] = join(x[A, B] for 2 in 0..0, y[A, B] for 2 in 1..1) outside=0\n"
            "result_1[A, B, 2] = join(x[A, B] for 2 in 0..0, y[A, B] for 2 in 1..1) outside=0\n"
            "result_2[A] = join(s for A in 0..0, s for A in 1..1) outside=0\n");
}

TEST(Join, PaddingIsAJoinWithAValueOutside) {
  EXPECT_EQ(operators_of(R"(
A = 2
B = 3
def f(x: float32[A, B]):
    return np.pad(x, ((0, 0), (1, 2))), np.pad(x, 1, constant_values=0.5), np.pad(x, ((1, 0), (0, 0))), np.pad(x, 0) + 1
)"),
            "result_0[A, B:6] = join(x[A, B:6 - 1] for B:6 in 1..3) outside=0\n"
            "result_1[A:4, B:5] = join(x[A:4 - 1, B:5 - 1] for A:4 in 1..2 and B:5 in 1..3) outside=0.5\n"
            "result_2[A:3, B] = join(x[A:3 - 1, B] for A:3 in 1..2) outside=0\n"
            "result_3[A, B] = add(x[A, B], 1)\n");
}

// A roll of all elements is cut within a row: the join runs along the merged axis, and a result with the caller's axes
// is a copy of it.
TEST(Join, ARollIsAJoinOfTwoSlices) {
  EXPECT_EQ(operators_of(R"(
A = 5
B = 3
def f(x: float32[A, B]):
    return np.roll(x, 2, axis=0), np.roll(x, -1, axis=1), np.roll(x, 7), np.roll(x, (1, 1), axis=(0, 1))
)"),
            "result_0[A, B] = join(x[A + 3, B] for A in 0..1, x[A - 2, B] for A in 2..4) outside=0\n"
            "result_1[A, B] = join(x[A, B + 1] for B in 0..1, x[A, at 0] for B in 2..2) outside=0\n"
            "result_2.1[3·A + B] = copy(x[A, B])\n"
            "result_2[A*B:15] = join(result_2.1[A*B:15 + 8] for A*B:15 in 0..6, result_2.1[A*B:15 - 7] for A*B:15 in "
            "7..14) outside=0\n"
            "result_3.1[A, B] = join(x[at 4, B] for A in 0..0, x[A - 1, B] for A in 1..4) outside=0\n"
            "result_3[A, B] = join(result_3.1[A, at 2] for B in 0..0, result_3.1[A, B - 1] for B in 1..2) outside=0\n"
            "result_2.1.3[A, B] = copy(result_2[3·A + B])\n");
}

TEST(Join, SlicesAreInputsWithoutACopy) {
  EXPECT_EQ(operators_of(R"(
A = 9
B = 3
def f(x: float32[A], y: float32[B]):
    return np.concatenate([x[:4], y]), np.concatenate([x[3:5], x[4:6], x[5:8]]), np.pad(x[2:5], 1)
)"),
            "result_0[A:7] = join(x[A:7] for A:7 in 0..3, y[A:7 - 4] for A:7 in 4..6) outside=0\n"
            "result_1[A:7] = join(x[A:7 + 3] for A:7 in 0..1, x[A:7 + 2] for A:7 in 2..3, x[A:7 + 1] for A:7 in 4..6) "
            "outside=0\n"
            "result_2[B:5] = join(x[B:5 + 1] for B:5 in 1..3) outside=0\n");
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
