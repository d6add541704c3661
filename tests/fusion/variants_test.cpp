// The alternatives to groups: stacked contractions, and epilogues that a matrix product can absorb.
#include <gtest/gtest.h>

#include "fusion/fusion_text.h"

namespace millrace {
namespace {

std::string names_of(const TrainingGraph& training, const std::vector<OperatorId>& operators) {
  std::vector<std::string> names;
  for (const OperatorId id : operators) names.push_back(training.graph.operators[id.at()].name);
  std::sort(names.begin(), names.end());
  return join(names, ", ");
}

// The stackings of a kind, one per line, sorted: contractions, then absorbed operators.
std::string stackings_of(const TrainingGraph& training, const FusedGraph& fused, Stacking::Kind kind) {
  std::vector<std::string> lines;
  for (const Stacking& stacking : fused.stackings) {
    if (stacking.kind != kind) continue;
    EXPECT_LT(stacking.words_stacked, stacking.words_separate);
    const std::string absorbed =
        stacking.absorbed.empty() ? "" : concat(" with ", names_of(training, stacking.absorbed));
    lines.push_back(names_of(training, stacking.contractions) + absorbed + "\n");
  }
  std::sort(lines.begin(), lines.end());
  return join(lines, "");
}

// "name of contraction: name of epilogue, words saved" of each.
std::vector<std::string> epilogues_of(const TrainingGraph& training) {
  std::vector<std::string> lines;
  for (const Epilogue& epilogue : fuse(training).epilogues) {
    lines.push_back(concat(training.graph.operators[epilogue.contraction.at()].name, ": ", epilogue.name, " ",
                           epilogue.words_saved));
  }
  return lines;
}

void expect_among(const std::vector<std::string>& lines, const std::string& line) {
  EXPECT_NE(std::find(lines.begin(), lines.end(), line), lines.end()) << line << " is not among\n" << join(lines, "\n");
}

TEST(FuseStackings, QKVOfSelfAttentionInPairsAndAllThree) {
  const TrainingGraph training = training_of_model("bert_encoder", {"large"});
  const FusedGraph fused = fuse(training);
  EXPECT_EQ(stackings_of(training, fused, Stacking::Kind::shared_operand),
            "k_projected einsum d_wk, q_projected einsum d_wq\n"
            "k_projected einsum d_wk, q_projected einsum d_wq, v_projected einsum d_wv\n"
            "k_projected einsum d_wk, v_projected einsum d_wv\n"
            "k_projected einsum, q_projected einsum\n"
            "k_projected einsum, q_projected einsum, v_projected einsum\n"
            "k_projected einsum, v_projected einsum\n"
            "q_projected einsum d_wq, v_projected einsum d_wv\n"
            "q_projected einsum, v_projected einsum\n");
  // The residual's gradient is not a contraction's result: the product adds it.
  EXPECT_EQ(
      stackings_of(training, fused, Stacking::Kind::summed_results),
      "k_projected einsum d_x, q_projected einsum d_x with d_x sum, d_x sum 2\n"
      "k_projected einsum d_x, q_projected einsum d_x, v_projected einsum d_x with d_x sum, d_x sum 2, d_x sum 3\n"
      "k_projected einsum d_x, v_projected einsum d_x with d_x sum, d_x sum 2\n"
      "q_projected einsum d_x, v_projected einsum d_x with d_x sum, d_x sum 2\n");
}

TEST(FuseStackings, CountTheirWords) {
  const TrainingGraph training = training_of_model("bert_encoder", {"large"});
  const int64_t x = 1024 * 8 * 512;
  const int64_t w = 1024 * 1024;
  std::set<Stacking::Kind> kinds;
  for (const Stacking& stacking : fuse(training).stackings) {
    kinds.insert(stacking.kind);
    const auto count = static_cast<int64_t>(stacking.contractions.size());
    if (stacking.kind == Stacking::Kind::shared_operand) {  // x and weights to projections, x and those to weights
      EXPECT_EQ(stacking.words_separate, count * (x + w + x));
      EXPECT_EQ(stacking.words_stacked, x + count * (w + x));
    } else {  // an addition reads two and writes one; the stack reads the residual's gradient
      EXPECT_EQ(stacking.words_separate, count * (x + w + x) + count * 3 * x);
      EXPECT_EQ(stacking.words_stacked, x + count * (x + w) + x);
    }
  }
  EXPECT_EQ(kinds.size(), 2U);
}

TEST(FuseStackings, KeysAndValuesOfTheEncodersOutput) {
  const TrainingGraph training = training_of_model("encoder_decoder_attention", {"large"});
  const FusedGraph fused = fuse(training);
  EXPECT_EQ(stackings_of(training, fused, Stacking::Kind::shared_operand),
            "k_projected einsum d_wk, v_projected einsum d_wv\n"
            "k_projected einsum, v_projected einsum\n");
  EXPECT_EQ(stackings_of(training, fused, Stacking::Kind::summed_results),
            "k_projected einsum d_memory, v_projected einsum d_memory with d_memory sum\n");
}

TEST(FuseStackings, GateAndUpProjection) {
  const TrainingGraph training = training_of_model("llama_block_without_rope", {"base"});
  const FusedGraph fused = fuse(training);
  const std::string shared = stackings_of(training, fused, Stacking::Kind::shared_operand);
  const std::string summed = stackings_of(training, fused, Stacking::Kind::summed_results);
  EXPECT_NE(shared.find("\ngate einsum, up einsum\n"), std::string::npos) << shared;
  EXPECT_NE(shared.find("gate einsum d_w_gate, up einsum d_w_up\n"), std::string::npos) << shared;
  EXPECT_NE(summed.find("gate einsum d_mlp_norm, up einsum d_mlp_norm with d_mlp_norm sum\n"), std::string::npos)
      << summed;
}

// One depends on the other: they cannot be stacked.
TEST(FuseStackings, NoContractionsThatDependOnEachOther) {
  const TrainingGraph training = training_of(R"(
A = 3
def f(x: float64[A, A], w: float64[A, A]):
    y = np.einsum("ab,bc->ac", w, x)
    return np.einsum("ab,bc->ac", w, y)
)");
  const FusedGraph fused = fuse(training);
  ASSERT_FALSE(fused.stackings.empty());
  for (const Stacking& stacking : fused.stackings)
    EXPECT_EQ(names_of(training, stacking.contractions).find("y einsum, "), std::string::npos);
}

TEST(FuseStackings, NoContractionsWithDifferentUsesOfTheOperand) {
  const TrainingGraph training = training_of(R"(
A = 3
def f(x: float64[A, A], v: float64[A, A], w: float64[A, A]):
    y = np.einsum("ab,bc->ac", x, v)
    z = np.einsum("ab,ac->bc", x, w)
    return y, z
)");
  const FusedGraph fused = fuse(training);
  ASSERT_FALSE(fused.stackings.empty());
  for (const Stacking& stacking : fused.stackings)
    EXPECT_EQ(training.graph.operators[stacking.contractions[0].at()].pass, Pass::backward);
}

constexpr std::string_view kLinear = R"(
B = 3
I = 4
U = 5
def f(x: float64[B, I], w: float64[I, U], c: float64[U]):
    linear = np.einsum("bi,iu->bu", x, w)
    biased = linear + c
    activated = relu(biased)
    return np.einsum("bu,iu->bi", activated, w)
)";

TEST(FuseEpilogues, ABiasAndAReluAfterIt) {
  const std::vector<std::string> found = epilogues_of(training_of(kLinear));
  expect_among(found, "linear einsum: bias 30");
  expect_among(found, "linear einsum: bias-relu 60");
}

TEST(FuseEpilogues, ABiasGradientOfItsOperand) {
  expect_among(epilogues_of(training_of(kLinear)), "linear einsum d_w: bias_gradient 15");
}

TEST(FuseEpilogues, AReluGradientAfterIt) {
  expect_among(epilogues_of(training_of(kLinear)), "result einsum d_activated: relu_dx 30");
}

// A saved tensor is written anyway: absorbing its reader only saves reading it.
TEST(FuseEpilogues, SavedTensorsAreStillWritten) {
  const TrainingGraph training = training_of(R"(
B = 3
I = 4
U = 5
def f(x: float64[B, I], w: float64[I, U], c: float64[U]):
    linear = np.einsum("bi,iu->bu", x, w)
    biased = linear + c
    return gelu(biased)
)");
  const std::vector<std::string> found = epilogues_of(training);
  expect_among(found, "linear einsum: bias 30");
  expect_among(found, "linear einsum: bias-gelu 45");
}

TEST(FuseEpilogues, ExistInTheModels) {
  const TrainingGraph training = training_of_model("bert_encoder", {"large"});
  const int64_t ubj = int64_t{4096} * 8 * 512;
  expect_among(epilogues_of(training), concat("linear1 einsum: bias-relu ", 4 * ubj));
  expect_among(epilogues_of(training), concat("linear1 einsum d_w1: bias_gradient ", ubj));
}

// The gradients of packed queries, keys and values are joined only for the products that read them.
TEST(FuseJoinedStacks, OfPackedProjections) {
  const TrainingGraph training = training_of_model("gpt2_block", {"B=8", "J=1024", "H=12"});
  const std::vector<JoinedStack> stacks = fuse(training).joined_stacks;
  ASSERT_EQ(stacks.size(), 1U);
  const int64_t x = int64_t{8} * 1024 * 768;
  EXPECT_EQ(stacks[0].words_saved, 3 * x + 3 * x) << "read and written by the join";
  EXPECT_EQ(stacks[0].sources.size(), 3U);
  EXPECT_EQ(names_of(training, stacks[0].readers), "qkv einsum d_attn_norm, qkv einsum d_c_attn_weight");
}

constexpr const char* kStacked = R"(
B, I = 6, 5


def f(x: float32[B, I], y: float32[B, I], w: fixed.float32[2, I, B]):
    joined = np.stack([np.exp(x), y])
    return )";

TEST(FuseJoinedStacks, OnlyWhereContractionsAloneReadThem) {
  const auto count = [](const std::string& results) {
    return fuse(training_of(concat(kStacked, results, "\n"))).joined_stacks.size();
  };
  EXPECT_EQ(count("np.einsum(\"sbi,sic->bc\", joined, w)"), 1U);
  EXPECT_EQ(count("np.einsum(\"sbi,sic->bc\", joined, w), joined"), 0U) << "a result";
  EXPECT_EQ(count("np.einsum(\"sbi,sic->bc\", joined, w), np.tanh(joined)"), 0U) << "another reader";
  EXPECT_EQ(count("np.einsum(\"sbi,tic->bc\", joined[:1], w[:1])"), 0U) << "a part of it";
}

// Backward reads exp(x), so the kernel that joins it with y writes it anyway.
TEST(FuseJoinedStacks, LeaveTheRestOfTheKernel) {
  const TrainingGraph training = training_of(concat(kStacked, "np.einsum(\"sbi,sic->bc\", joined, w)\n"));
  const std::vector<JoinedStack> stacks = fuse(training).joined_stacks;
  ASSERT_EQ(stacks.size(), 1U);
  const int64_t x = 6 * 5;
  EXPECT_EQ(stacks[0].words_saved, (x + x + x + 2 * x) - (x + x));
}

}  // namespace
}  // namespace millrace
