// Indexing, reshaping and moving axes: accesses, and a copy where no access can express it.
#include <gtest/gtest.h>

#include "frontend/program_text.h"

namespace millrace {
namespace {

TEST(Views, SlicesAreOffsetsAndSteps) {
  EXPECT_EQ(operators_of(R"(
A = 8
B = 10
def f(x: float32[A, B]):
    return x[2:5] + 1, x[:, ::3] + 1, x[-3:, 1:-1] + 1, x[5:100, -100:2] + 1
)"),
            "result_0[A:3, B] = add(x[A:3 + 2, B], 1)\n"
            "result_1[A, B:4] = add(x[A, 3·B:4], 1)\n"
            "result_2[A:3, A] = add(x[A:3 + 5, A + 1], 1)\n"
            "result_3[A:3, B:2] = add(x[A:3 + 5, B:2], 1)\n");
}

TEST(Views, NegativeStepsRunBackwards) {
  EXPECT_EQ(operators_of(R"(
A = 8
def f(x: float32[A]):
    return x[::-1] + 1, x[6:1:-2] + 1, np.flip(x) + 1
)"),
            "result_0[A] = add(x[-A + 7], 1)\n"
            "result_1[A:3] = add(x[-2·A:3 + 6], 1)\n"
            "result_2[A] = add(x[-A + 7], 1)\n");
}

TEST(Views, IntegersTakeOnePosition) {
  EXPECT_EQ(operators_of(R"(
A = 8
B = 10
def f(x: float32[A, B], y: float32[A]):
    return x[3] + 1, x[:, -1] + y, x[2, 3:] + 1, x[0, 0] + 1
)"),
            "result_0[B] = add(x[at 3, B], 1)\n"
            "result_1[A] = add(x[A, at 9], y[A])\n"
            "result_2[B:7] = add(x[at 2, B:7 + 3], 1)\n"
            "result_3 = add(x[at 0, at 0], 1)\n");
}

TEST(Views, SlicesMixWithNoneAndAnEllipsis) {
  EXPECT_EQ(operators_of(R"(
A = 4
B = 5
C = 6
def f(x: float32[A, B, C]):
    return x[1:3, ..., None, 0] + 1, x[None, ..., ::2] + 1
)"),
            "result_0[A:2, B, 1] = add(x[A:2 + 1, B, at 0], 1)\n"
            "result_1[1, A, B, C:3] = add(x[A, B, 2·C:3], 1)\n");
}

TEST(Views, ASliceOfASliceIsOneAccess) {
  EXPECT_EQ(operators_of(R"(
A = 24
def f(x: float32[A]):
    return x[2:20][::3][1:][::-1] + 1
)"),
            "result[A:5] = add(x[-3·A:5 + 17], 1)\n");
}

TEST(Views, TransposesMoveNothing) {
  EXPECT_EQ(operators_of(R"(
A = 2
B = 3
C = 4
def f(x: float32[A, B, C], y: float32[C, B, A]):
    return np.transpose(x) + y, np.swapaxes(x, 0, -1) + y, np.transpose(x, (2, 1, 0)) + y, np.moveaxis(x, 0, -1) + 1
)"),
            "result_0[C, B, A] = add(x[A, B, C], y[C, B, A])\n"
            "result_1[C, B, A] = add(x[A, B, C], y[C, B, A])\n"
            "result_2[C, B, A] = add(x[A, B, C], y[C, B, A])\n"
            "result_3[B, C, A] = add(x[A, B, C], 1)\n");
}

TEST(Views, AxesOfExtentOneComeAndGo) {
  EXPECT_EQ(operators_of(R"(
A = 2
B = 3
def f(x: float32[A, 1, B], y: float32[A, B]):
    return np.squeeze(x) + y, np.squeeze(x, axis=1) + y, np.expand_dims(y, 1) + x, np.expand_dims(y, (0, -1)) + 1
)"),
            "result_0[A, B] = add(x[A, 1, B], y[A, B])\n"
            "result_1[A, B] = add(x[A, 1, B], y[A, B])\n"
            "result_2[A, 1, B] = add(y[A, B], x[A, 1, B])\n"
            "result_3[1, A, B, 1'] = add(y[A, B], 1)\n");
}

// The sizes of the module name the parts.
TEST(Views, AReshapeSplitsAndMergesAxes) {
  EXPECT_EQ(operators_of(R"(
B = 2
H = 3
D = 4
E = H * D
def f(x: float32[B, E], y: float32[B, H, D], b: float32[E]):
    return np.reshape(x, (B, H, D)) + y, np.reshape(y, (B, -1)) + b, np.reshape(y, (B, 2, 6)) + 1
)"),
            "result_0[B, H, D] = add(x[B, 4·H + D], y[B, H, D])\n"
            "result_1[B, 4·H + D] = add(y[B, H, D], b[4·H + D])\n"
            "result_2.1[B, 4·H + D] = copy(y[B, H, D])\n"
            "result_2[B, E.0, E.1] = add(result_2.1[B, 6·E.0 + E.1], 1)\n");
}

TEST(Views, PartsWithoutANameAreNumbered) {
  EXPECT_EQ(operators_of(R"(
E = 12
def f(x: float32[E]):
    return np.reshape(x, (3, 4)) + 1
)"),
            "result[E.0, E.1] = add(x[4·E.0 + E.1], 1)\n");
}

TEST(Views, AReshapeThatDoesNotDivideIsACopy) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[5, 6, 4]):
    return np.reshape(x, (5, 8, 3)) + 1
)"),
            "result.1[5, 4·6 + 4] = copy(x[5, 6, 4])\n"
            "result[5, 8, 3] = add(result.1[5, 3·8 + 3], 1)\n");
}

TEST(Views, TheOperatorBeforeACopyWritesMergedAxes) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[5, 6, 4]):
    y = np.exp(x)
    return np.reshape(y, (5, 8, 3)) + 1, np.sum(y, axis=1)
)"),
            "y[5, 4·6 + 4] = exp(x[5, 6, 4])\n"
            "result_0[5, 8, 3] = add(y[5, 3·8 + 3], 1)\n"
            "result_1[5, 4] = sum(y[5, 4·6 + 4]) over 6\n");
}

TEST(Views, AMergedAxisIsSlicedByItsDigits) {
  EXPECT_EQ(operators_of(R"(
H = 3
D = 4
def f(x: float32[H, D]):
    y = np.ravel(x)
    return y[D:] + 1, y[5:7] + 1, y[1::D] + 1, y[::2] + 1, y[7] + 1, y[::-1] + 1, y[1:6] + 1
)"),
            "result_0[4·H:2 + D] = add(x[H:2 + 1, D], 1)\n"
            "result_1[D:2] = add(x[at 1, D:2 + 1], 1)\n"
            "result_2[H] = add(x[H, at 1], 1)\n"
            "result_3[2·H + D:2] = add(x[H, 2·D:2], 1)\n"
            "result_4 = add(x[at 1, at 3], 1)\n"
            "result_5[4·H + D] = add(x[-H + 2, -D + 3], 1)\n"
            "result_6.1[4·H + D] = copy(x[H, D])\n"
            "result_6[H*D:5] = add(result_6.1[H*D:5 + 1], 1)\n");
}

TEST(Views, OperandsAreReadInCommonDigits) {
  EXPECT_EQ(operators_of(R"(
H = 3
D = 4
E = 12
def f(x: float32[H, D], y: float32[E], z: float32[6, 2]):
    return np.ravel(x) * y, np.ravel(x) * np.ravel(z)
)"),
            "result_0[4·H + D] = multiply(x[H, D], y[4·H + D])\n"
            "result_1[4·H + 2·E.1 + 2] = multiply(x[H, 2·E.1 + 2], z[2·H + E.1, 2])\n");
}

// The smaller operand is copied.
TEST(Views, MergedAxesThatDoNotFitAreCopied) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[5, 4, 3], y: float32[3, 4]):
    return np.reshape(x, (5, 12)) * np.ravel(y)
)"),
            "result.1[4·3 + 4] = copy(y[3, 4])\n"
            "result[5, 3·4 + 3] = multiply(x[5, 4, 3], result.1[3·4 + 3])\n");
}

TEST(Views, ReductionsRunOverAllPartsOfAnAxis) {
  EXPECT_EQ(operators_of(R"(
B = 2
H = 3
D = 4
def f(x: float32[B, H, D], w: float32[H * D]):
    y = np.reshape(x, (B, H * D))
    return np.sum(y, axis=1), np.max(y, axis=1, keepdims=True), softmax(y), layernorm(y, w, w)
)"),
            "result_0[B] = sum(x[B, H, D]) over H, D\n"
            "result_1[B, 1] = max(x[B, H, D]) over H, D\n"
            "result_2[B, 4·H + D] = softmax(x[B, H, D]) over H, D\n"
            "result_3[B, 4·H + D], result_3.mean[B], result_3.rstd[B] = layernorm(x[B, H, D], w[4·H + D], w[4·H + D]) "
            "over H, D eps=1e-05\n");
}

TEST(Views, ContractionsRunOverAllPartsOfAnAxis) {
  EXPECT_EQ(operators_of(R"(
B = 2
H = 3
D = 4
N = 5
def f(x: float32[B, D, H], w: float32[H * D, N]):
    return np.einsum("be,en->bn", np.reshape(np.transpose(x, (0, 2, 1)), (B, H * D)), w)
)"),
            "result[B, N] = contraction(x[B, D, H], w[4·H + D, N]) over H, D\n");
}

TEST(Views, BroadcastPartsAreInNoAccess) {
  EXPECT_EQ(operators_of(R"(
A = 2
B = 3
def f(x: float32[A, B], y: float32[1, B]):
    return np.repeat(x, 2, axis=1) + 1, np.tile(x, (2, 1)) + 1, np.broadcast_to(y, (A, B)) + x, np.tile(y, 3) + 1
)"),
            "result_0[A, 2·B + 2] = add(x[A, B], 1)\n"
            "result_1[2·2 + A, B] = add(x[A, B], 1)\n"
            "result_2[A, B] = add(y[1, B], x[A, B])\n"
            "result_3[1, 3·3 + B] = add(y[1, B], 1)\n");
}

TEST(Views, ADiagonalIsOneOfWholeAxes) {
  EXPECT_EQ(operators_of(R"(
A = 6
B = 3
def f(x: float32[A, B]):
    return np.einsum("ii->i", x[:B]), np.einsum("ii->i", np.reshape(x, (2, 9))[:, :2]), np.einsum("iji->ij", np.reshape(x, (3, 2, 3)))
)"),
            "result_0.1[A:3, B] = copy(x[A:3, B])\n"
            "result_0[A:3] = copy(result_0.1[A:3, A:3])\n"
            "result_1.1[A.0, B:2] = copy(x[3·A.0, B:2])\n"
            "result_1[A.0] = copy(result_1.1[A.0, A.0])\n"
            "result_2.1[A.0, A.1, B] = copy(x[2·A.0 + A.1, B])\n"
            "result_2[A.0, A.1] = copy(result_2.1[A.0, A.1, A.0])\n");
}

// A broadcast index that neither operand has is copied.
TEST(Views, AContractionRunsAlongAnOperand) {
  EXPECT_EQ(operators_of(R"(
A = 2
B = 3
C = 4
def f(x: float32[B], y: float32[C]):
    return np.einsum("ab,c->c", np.broadcast_to(x, (A, B)), y), np.einsum("ab,b->a", np.broadcast_to(x, (A, B)), x)
)"),
            "result_0.1 = sum(x[B]) over A, B\n"
            "result_0[C] = multiply(result_0.1, y[C])\n"
            "result_1.1[A, B] = copy(x[B])\n"
            "result_1[A] = contraction(result_1.1[A, B], x[B]) over B\n");
}

TEST(Views, AWindowIsASumOfIndices) {
  EXPECT_EQ(operators_of(R"(
T = 8
K = 3
C = 2
def f(x: float32[T, C], w: float32[K, C]):
    windows = np.lib.stride_tricks.sliding_window_view(x, K, axis=0)
    return np.einsum("tck,kc->tc", windows, w), np.max(windows[::2], axis=-1)
)"),
            "result_0[T:6, C] = contraction(x[T:6 + K, C], w[K, C]) over K\n"
            "result_1[T:3, C] = max(x[2·T:3 + K, C]) over K\n");
}

TEST(Views, ADropoutCountsElementsInOrder) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[2, 6]):
    return dropout(np.ravel(x), 0.5), dropout(x[:, ::2], 0.5)
)"),
            "result_0[6·2 + 6], result_0.mask[2, 6] = dropout(x[2, 6]) p=0.5 subsequence=0\n"
            "result_1[2, 3], result_1.mask[2, 3] = dropout(x[2, 2·3]) p=0.5 subsequence=1\n");
}

TEST(Views, ACausalMaskHasOneIndexForEachPosition) {
  EXPECT_EQ(operators_of(R"(
def f(x: float32[2, 2, 6]):
    return causal_mask(np.reshape(np.transpose(x, (1, 0, 2)), (4, 6)))
)"),
            "result.1[2·2 + 2', 6] = copy(x[2', 2, 6])\n"
            "result[4, 6] = causal_mask(result.1[4, 6])\n");
}

}  // namespace
}  // namespace millrace
