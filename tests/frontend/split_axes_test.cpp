// Computed tensors get the axes that their readers see; slices move through maps.
#include <gtest/gtest.h>

#include "frontend/program_text.h"

namespace millrace {
namespace {

TEST(SplitAxes, AProductHasTheAxesThatItsReaderReshapesTo) {
  EXPECT_EQ(operators_of(R"(
B = 2
T = 5
H = 3
D = 4
E = H * D
def f(x: float32[B, T, E], w: float32[E, E], b: float32[E]):
    q = np.reshape(np.einsum("bte,ef->btf", x, w) + b, (B, T, H, D))
    scores = np.einsum("bqhd,bkhd->bhqk", q, q)
    return softmax(scores)
)"),
            "q.1[B, T, H, D] = contraction(x[B, T, E], w[E, 4·H + D]) over E\n"
            "q[B, T, H, D] = add(q.1[B, T, H, D], b[4·H + D])\n"
            "scores[B, H, T, T'] = contraction(q[B, T, H, D], q[B, T', H, D]) over D\n"
            "result[B, H, T, T'] = softmax(scores[B, H, T, T']) over T'\n");
}

TEST(SplitAxes, APackedProductIsReadInSections) {
  EXPECT_EQ(operators_of(R"(
T = 5
E = 4
def f(x: float32[T, E], w: float32[E, 3 * E]):
    qkv = np.einsum("te,ef->tf", x, w)
    q, k, v = np.split(qkv, 3, axis=-1)
    return np.einsum("qe,ke->qk", q, k), v * 2
)"),
            "qkv[T, 3, E] = contraction(x[T, E'], w[E', 4·3 + E]) over E'\n"
            "result_0[T, T'] = contraction(qkv[T, at 0, E], qkv[T', at 1, E]) over E\n"
            "result_1[T, E] = multiply(qkv[T, at 2, E], 2)\n");
}

// Grouped heads: the axis is split into heads, and each section has some of them.
TEST(SplitAxes, SectionsMayBeOfDifferentLengths) {
  EXPECT_EQ(operators_of(R"(
T = 5
E = 6
H = 4
G = 2
D = 3
def f(x: float32[T, E], w: float32[E, (H + 2 * G) * D]):
    qkv = np.einsum("te,ef->tf", x, w)
    q = np.reshape(qkv[:, :H * D], (T, H, D))
    k = np.reshape(qkv[:, H * D:(H + G) * D], (T, G, D))
    v = np.reshape(qkv[:, (H + G) * D:], (T, G, D))
    return np.exp(q), k * v
)"),
            "qkv[T, 2, H, D] = contraction(x[T, E], w[E, 12·2 + 3·H + D]) over E\n"
            "result_0[T, H, D] = exp(qkv[T, at 0, H, D])\n"
            "result_1[T, G, D] = multiply(qkv[T, at 1, G, D], qkv[T, at 1, G + 2, D])\n");
}

TEST(SplitAxes, ARotaryEmbeddingHasAnIndexForTheHalf) {
  EXPECT_EQ(operators_of(R"(
T = 5
E = 6
P = 8
def f(x: float32[T, E], w: float32[E, P], cos: float32[T, P], sin: float32[T, P]):
    q = np.einsum("te,ep->tp", x, w)
    turned = np.concatenate([-q[..., P // 2:], q[..., :P // 2]], axis=-1)
    y = q * cos + turned * sin
    return np.einsum("ap,bp->ab", y, y)
)"),
            "q[T, P.0, P:4] = contraction(x[T, E], w[E, 4·P.0 + P:4]) over E\n"
            "turned.1[T, P:4.0, P:4] = negate(q[T, P:4.0 + 1, P:4])\n"
            "turned[T, P.0, P:4] = join(turned.1[T, P.0, P:4] for P.0 in 0..0, q[T, P.0 - 1, P:4] for P.0 in 1..1) "
            "outside=0\n"
            "y.1[T, P.0, P:4] = multiply(q[T, P.0, P:4], cos[T, 4·P.0 + P:4])\n"
            "y.1.2[T, P.0, P:4] = multiply(turned[T, P.0, P:4], sin[T, 4·P.0 + P:4])\n"
            "y[T, P.0, P:4] = add(y.1[T, P.0, P:4], y.1.2[T, P.0, P:4])\n"
            "result[T, T'] = contraction(y[T, P.0, P:4], y[T', P.0, P:4]) over P.0, P:4\n");
}

TEST(SplitAxes, PositionsThatAreJoinedKeepTheirAxis) {
  EXPECT_EQ(
      operators_of(R"(
P = 4
def f(x: float32[P]):
    return np.exp(np.concatenate([np.arange(P), -x]))
)"),
      "result.1[P] = index()\n"
      "result.1.2[P.0, P] = negate(x[4·P.0 + P])\n"
      "result.1.3[P:8.0, P] = join(result.1[4·P:8.0 + P] for P:8.0 in 0..0, result.1.2[P:8.0 - 1, P] for P:8.0 in "
      "1..1) outside=0\n"
      "result[4·P:8.0 + P] = exp(result.1.3[P:8.0, P])\n");
}

TEST(SplitAxes, InterleavedPairsHaveAnIndexForThePair) {
  EXPECT_EQ(operators_of(R"(
T = 5
E = 6
P = 8
def f(x: float32[T, E], w: float32[E, P], cos: float32[T, P // 2], sin: float32[T, P // 2]):
    q = np.einsum("te,ep->tp", x, w)
    a = q[:, 0::2]
    b = q[:, 1::2]
    return np.reshape(np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1), (T, P))
)"),
            "q[T, P:4, P.1] = contraction(x[T, E], w[E, 2·P:4 + P.1]) over E\n"
            "result.1[T, P:4] = multiply(q[T, P:4, at 0], cos[T, P:4])\n"
            "result.1.2[T, P:4] = multiply(q[T, P:4, at 1], sin[T, P:4])\n"
            "result.1.3[T, P:4] = subtract(result.1[T, P:4], result.1.2[T, P:4])\n"
            "result.1.4[T, P:4] = multiply(q[T, P:4, at 0], sin[T, P:4])\n"
            "result.1.5[T, P:4] = multiply(q[T, P:4, at 1], cos[T, P:4])\n"
            "result.1.6[T, P:4] = add(result.1.4[T, P:4], result.1.5[T, P:4])\n"
            "result[T, 2·P:4 + 2] = join(result.1.3[T, P:4] for 2 in 0..0, result.1.6[T, P:4] for 2 in 1..1) "
            "outside=0\n");
}

TEST(SplitAxes, ASliceOfAMapIsAMapOfSlices) {
  EXPECT_EQ(operators_of(R"(
A = 6
B = 4
def f(x: float32[A, B], b: float32[B]):
    h = np.tanh(x + b)
    return h[:2] * 2, h[2:, ::-1] * 3
)"),
            "h.1[A:2, B] = add(x[A:2, B], b[B])\n"
            "h.1.2[A:4, B] = add(x[A:4 + 2, -B + 3], b[-B + 3])\n"
            "h[A:2, B] = tanh(h.1[A:2, B])\n"
            "h.2[A:4, B] = tanh(h.1.2[A:4, B])\n"
            "result_0[A:2, B] = multiply(h[A:2, B], 2)\n"
            "result_1[A:4, B] = multiply(h.2[A:4, B], 3)\n");
}

// The class token of the last layer. Several slices are faster as one product.
TEST(SplitAxes, OnlyTheSliceOfAProductThatIsReadIsComputed) {
  EXPECT_EQ(operators_of(R"(
B = 2
T = 5
E = 6
F = 4
def f(x: float32[B, T, E], w: float32[E, F], b: float32[F]):
    y = np.tanh(np.einsum("bte,ef->btf", x, w) + b)
    z = np.einsum("bte,ef->btf", x, w)
    return y[:, 0] * 2, z[:, 0] * z[:, 1]
)"),
            "y.1[B, F] = contraction(x[B, at 0, E], w[E, F]) over E\n"
            "y.1.2[B, F] = add(y.1[B, F], b[F])\n"
            "y[B, F] = tanh(y.1.2[B, F])\n"
            "z[B, T, F] = contraction(x[B, T, E], w[E, F]) over E\n"
            "result_0[B, F] = multiply(y[B, F], 2)\n"
            "result_1[B, F] = multiply(z[B, at 0, F], z[B, at 1, F])\n");
}

TEST(SplitAxes, OverlappingSlicesAreComputedOnce) {
  EXPECT_EQ(operators_of(R"(
A = 6
def f(x: float32[A]):
    h = np.exp(x)
    return h[1:] - h[:-1]
)"),
            "h[A] = exp(x[A])\n"
            "result[A:5] = subtract(h[A:5 + 1], h[A:5])\n");
}

TEST(SplitAxes, AMapThatIsReadWholeStays) {
  EXPECT_EQ(operators_of(R"(
A = 6
def f(x: float32[A]):
    h = np.exp(x)
    return h[:2] * 2, h * 3
)"),
            "h[A] = exp(x[A])\n"
            "result_0[A:2] = multiply(h[A:2], 2)\n"
            "result_1[A] = multiply(h[A], 3)\n");
}

TEST(SplitAxes, ResultsKeepTheirShape) {
  EXPECT_EQ(operators_of(R"(
T = 5
E = 6
H = 2
def f(x: float32[T, E], w: float32[E, E]):
    y = np.einsum("te,ef->tf", x, w)
    return y, np.exp(np.reshape(y, (T, H, 3)))
)"),
            "y[T, E] = contraction(x[T, E'], w[E', E]) over E'\n"
            "result_1[T, H, E.1] = exp(y[T, 3·H + E.1])\n");
}

TEST(SplitAxes, AnAxisWithTwoKindsOfDigitsKeepsTheCommonOnes) {
  EXPECT_EQ(operators_of(R"(
T = 5
E = 12
def f(x: float32[T, E], w: float32[E, E]):
    y = np.einsum("te,ef->tf", x, w)
    return np.exp(np.reshape(y, (T, 3, 4))), np.exp(np.reshape(y, (T, 4, 3))), np.exp(np.reshape(y, (T, 3, 4)))
)"),
            "y[T, E] = contraction(x[T, E'], w[E', E]) over E'\n"
            "result_0[T, E.0, E.1] = exp(y[T, 4·E.0 + E.1])\n"
            "result_1[T, E.0, E.1] = exp(y[T, 3·E.0 + E.1])\n"
            "result_2[T, E.0, E.1] = exp(y[T, 4·E.0 + E.1])\n");
}

TEST(SplitAxes, AShiftedReaderKeepsTheAxisWhole) {
  EXPECT_EQ(operators_of(R"(
T = 5
E = 12
def f(x: float32[T, E], w: float32[E, E]):
    y = np.einsum("te,ef->tf", x, w)
    return np.exp(np.reshape(y, (T, 3, 4))), np.exp(y[:, 1:])
)"),
            "y[T, E] = contraction(x[T, E'], w[E', E]) over E'\n"
            "result_0[T, E.0, E.1] = exp(y[T, 4·E.0 + E.1])\n"
            "result_1[T, E:11] = exp(y[T, E:11 + 1])\n");
}

TEST(SplitAxes, APatchIsAnAccessOfTheImage) {
  EXPECT_EQ(operators_of(R"(
B = 2
C = 3
S = 8
P = 4
E = 5
def f(image: float32[B, C, S, S], w: float32[C * P * P, E], first: float32[1, 1, E]):
    patches = np.reshape(image, (B, C, S // P, P, S // P, P))
    patches = np.reshape(np.transpose(patches, (0, 2, 4, 1, 3, 5)), (B, S // P * S // P, C * P * P))
    embedded = np.einsum("bnp,pe->bne", patches, w)
    return np.concatenate([np.broadcast_to(first, (B, 1, E)), embedded], axis=1)
)"),
            "embedded[B, 2·S.0 + S.0', E] = contraction(image[B, C, 4·S.0 + S.1, 4·S.0' + P], w[16·C + 4·S.1 + P, E]) "
            "over C, S.1, P\n"
            "result[B, 5, E] = join(first[1, 5, E] for 5 in 0..0, embedded[B, 5 - 1, E] for 5 in 1..4) outside=0\n");
}

}  // namespace
}  // namespace millrace
