// The explanations why neighbours fused or not.
#include <gtest/gtest.h>

#include "fusion/fusion_text.h"

namespace millrace {
namespace {

// All explanations for pairs of forward operators, one per line.
std::string explained_forward(std::string_view text) {
  const TrainingGraph training = training_of(text);
  const FusedGraph fused = fuse(training);
  std::vector<std::string> lines;
  for (const PairExplanation& pair : explain(training, fused)) {
    const Operator& first = training.graph.operators[pair.first.at()];
    const Operator& second = training.graph.operators[pair.second.at()];
    if (first.pass == Pass::backward || second.pass == Pass::backward) continue;
    lines.push_back(concat(first.name, " | ", second.name, pair.fused ? " fused: " : " separate: ", pair.reason, "\n"));
  }
  std::sort(lines.begin(), lines.end());
  return join(lines, "");
}

TEST(FuseExplain, AContractionFusesWithNothing) {
  EXPECT_EQ(explained_forward(R"(
def f(x: float64[2, 3], w: float64[3, 4], c: float64[4]):
    y = np.einsum("ab,bc->ac", x, w)
    return y + c
)"),
            "y einsum | result bias separate: one is a contraction, which only absorbs scalings and epilogues\n");
}

TEST(FuseExplain, RowsReducedOverOtherDimensions) {
  EXPECT_EQ(explained_forward(R"(
A = 2
B = 3
C = 4
def f(x: float64[A, B, C]):
    y = softmax(x, axis=2)
    return softmax(y, axis=1)
)"),
            "y softmax | result softmax separate: they reduce over different dimensions: B and C\n");
}

// One of two sums can end inside a row while the other crosses all rows, if it reduces exactly the indices that the
// first one keeps.
TEST(FuseExplain, SumsThatComplementEachOther) {
  const std::string said = explained_forward(R"(
A = 200
B = 300
def f(x: float64[A, B]):
    y = np.sum(x, axis=1)
    z = np.sum(x, axis=0)
    return y, z
)");
  EXPECT_EQ(said.substr(0, said.find(':')), "y sum | z sum fused");
}

TEST(FuseExplain, SumsThatDoNot) {
  EXPECT_EQ(explained_forward(R"(
A = 200
B = 300
C = 4
def f(x: float64[A, B, C]):
    y = np.sum(x, axis=0)
    z = np.sum(x, axis=1)
    return y, z
)"),
            "y sum | z sum separate: a reduction over B does not fit a row of A\n");
}

TEST(FuseExplain, ATransposedAccess) {
  EXPECT_EQ(explained_forward(R"(
A = 3
def f(x: float64[A, A]):
    y = np.exp(x)
    z = np.einsum("ab->ba", y)
    return y + z
)"),
            "y exp | result residual separate: they access y along different indices\n");
}

TEST(FuseExplain, SpacesThatDiffer) {
  const std::string said = explained_forward(R"(
B = 2
I = 3
J = 4
def f(x: float64[B, I], v: float64[B, J]):
    y = np.exp(x)
    u = np.exp(v)
    return y[:, :, None] * u[:, None, :]
)");
  EXPECT_NE(said.find(" separate: their iteration spaces differ: "), std::string::npos) << said;
  EXPECT_NE(said.find(" fused: "), std::string::npos) << said;
}

TEST(FuseExplain, APathThroughAContraction) {
  const TrainingGraph training = training_of(R"(
A = 3
def f(x: float64[A, A], w: float64[A, A]):
    y = np.exp(x)
    product = np.einsum("ab,bc->ac", y, w)
    return y + product
)");
  const FusedGraph fused = fuse(training);
  EXPECT_EQ(explained(training, fused, "y exp", "result residual"),
            "separate: an operator between them, such as a contraction, reads one and writes an input of the other");
}

TEST(FuseExplain, ForwardAndBackward) {
  const TrainingGraph training = training_of("def f(x: float64[2, 3]):\n    return dropout(x)\n");
  const FusedGraph fused = fuse(training);
  EXPECT_EQ(explained(training, fused, "result dropout", "result dropout d_x"),
            "separate: they run in different passes");
}

TEST(FuseExplain, AFusedPairSaysWhatItSaved) {
  const TrainingGraph training = training_of(R"(
def f(x: float64[20, 30]):
    y = np.exp(x)
    return np.tanh(y)
)");
  const FusedGraph fused = fuse(training);
  const std::string said = explained(training, fused, "y exp", "result tanh");
  EXPECT_EQ(said.substr(0, 7), "fused: ");
  EXPECT_NE(said.find("600"), std::string::npos) << said;
}

}  // namespace
}  // namespace millrace
