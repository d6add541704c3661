// The forward tensors that backward reads: given, saved, or recomputed if that moves fewer words.
#include <gtest/gtest.h>

#include "autodiff/backward_text.h"

namespace millrace {
namespace {

TEST(Keep, ABroadcastIsRecomputed) {
  constexpr std::string_view program = R"(
def f(x: float32[4], y: float32[5]):
    z = x[:, None] * y
    return z * z
)";
  EXPECT_EQ(decisions_of(program),
            "gradient x = d_x.2\n"
            "gradient y = d_y.2\n"
            "kept for backward\n"
            "  x: given, 4 words, for z multiply again; z multiply d_y\n"
            "  y: given, 5 words, for z multiply again; z multiply d_x\n"
            "  z: recomputed, 20 words, for result multiply d_z; result multiply d_z 2\n");
  EXPECT_EQ(backward_of(program).substr(0, backward_of(program).find('\n')), "z.again[4, 5] = multiply(x[4], y[5])");
}

TEST(Keep, AMapOfAsManyWordsIsSaved) {
  EXPECT_EQ(decisions_of("def f(x: float32[4]):\n    z = np.exp(x)\n    return z * z\n"),
            "gradient x = d_x\n"
            "kept for backward\n"
            "  z: saved, 4 words, for result multiply d_z; result multiply d_z 2; z exp d_x\n");
}

TEST(Keep, ReductionsContractionsAndDropoutsAreSavedHoweverSmallTheirInputs) {
  EXPECT_EQ(decisions_of(R"(
def f(x: float32[4, 1], y: float32[1, 4]):
    z = np.einsum("ij,jk->ik", x, y)
    d = dropout(x[:, :, None] * y)
    return z * z, d * d
)")
                .find("recomputed"),
            std::string::npos);
}

// The inputs of a recomputation must be kept too: here a saved map.
TEST(Keep, ARecomputationReadsSavedTensors) {
  EXPECT_EQ(decisions_of(R"(
def f(x: float32[4], y: float32[5]):
    e = np.exp(x)
    z = e[:, None] * y
    return z * z
)"),
            "gradient x = d_x\n"
            "gradient y = d_y.2\n"
            "kept for backward\n"
            "  y: given, 5 words, for z multiply again; z multiply d_e\n"
            "  e: saved, 4 words, for z multiply again; z multiply d_y; e exp d_x\n"
            "  z: recomputed, 20 words, for result multiply d_z; result multiply d_z 2\n");
}

TEST(Keep, RecomputationsChain) {
  const std::string decisions = decisions_of(R"(
def f(x: float32[4], y: float32[5], w: float32[6]):
    z = x[:, None] * y
    v = z[:, :, None] * w
    return v * v
)");
  EXPECT_NE(decisions.find("  z: recomputed, 20 words, for v multiply again; v multiply d_w\n"), std::string::npos)
      << decisions;
  EXPECT_NE(decisions.find("  v: recomputed, 120 words"), std::string::npos) << decisions;
}

// Where the mask is zero, so is the gradient; so the dropout's output can replace the ReLU's output.
TEST(Keep, AReluBeforeADropoutIsNotSaved) {
  EXPECT_EQ(backward_of("def f(x: float32[4]):\n    return dropout(relu(x))\n"),
            "d_result.1[4] = dropout_dx(result.mask[4], d_result[4])\n"
            "d_x[4] = relu_dx(result[4], d_result.1[4])\n");
}

TEST(Keep, AReluIsSavedIfItsDropoutHasAnotherShapeOrItHasOtherReaders) {
  for (const std::string_view program :
       {"def f(x: float32[2, 2]):\n    y = relu(x)\n    return dropout(y[:, :, None])\n",
        "def f(x: float32[2, 2]):\n    y = relu(x)\n    return dropout(y[None])\n",
        "def f(x: float32[2, 2]):\n    y = relu(x)\n    return dropout(np.einsum(\"ij->ji\", y))\n",
        "def f(x: float32[2, 2]):\n    y = relu(x)\n    return dropout(y), y\n",
        "def f(x: float32[2, 2]):\n    y = relu(x)\n    return dropout(y) + y\n"}) {
    const std::string backward = backward_of(program);
    EXPECT_NE(backward.find("relu_dx(y["), std::string::npos) << program << backward;
  }
}

TEST(Keep, OtherTensorsAreNotKept) {
  EXPECT_EQ(decisions_of("def f(x: float32[4], y: float32[4]):\n    return -(x + y)\n").find("kept"),
            std::string::npos);
}

}  // namespace
}  // namespace millrace
