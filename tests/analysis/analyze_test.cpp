// Flop, words and lower bounds, counted by hand for small programs. paper_test.py checks the paper's layer.
#include "analysis/analyze.h"

#include <gtest/gtest.h>

#include "autodiff/backward_text.h"

namespace millrace {
namespace {

constexpr int64_t kFastMemory = int64_t{50} << 20;

Analysis analysis_of(std::string_view text, int64_t fast_memory_bytes = kFastMemory) {
  Result<Analysis> analysis = analyze(training_of(text), fast_memory_bytes);
  if (!analysis) {
    ADD_FAILURE() << to_string(analysis.error());
    return {};
  }
  return std::move(*analysis);
}

// One line per operator: its name, flop, input words and output words.
std::string counts_of(std::string_view text) {
  const TrainingGraph training = training_of(text);
  const Analysis analysis = analysis_of(text);
  std::string lines;
  for (const OperatorAnalysis& row : analysis.operators) {
    lines += concat(training.graph.operators[row.op.at()].name, ": ", row.flop, " flop, ", row.input_words, " in, ",
                    row.output_words, " out\n");
  }
  return lines;
}

TEST(Analyze, CountsALayer) {
  EXPECT_EQ(counts_of(R"(
def f(x: float32[2, 3], w: float32[3, 4], b: float32[4]):
    y = np.einsum("ij,jk->ik", x, w)
    z = y + b
    r = relu(z)
    return r
)"),
            "y einsum: 48 flop, 18 in, 8 out\n"  // 2·2·3·4; 6 + 12
            "z bias: 8 flop, 12 in, 8 out\n"
            "r relu: 0 flop, 8 in, 8 out\n"
            "r relu d_z: 0 flop, 16 in, 8 out\n"  // r and d_r
            "z bias d_b: 8 flop, 8 in, 4 out\n"
            "y einsum d_x: 48 flop, 20 in, 6 out\n"
            "y einsum d_w: 48 flop, 14 in, 12 out\n");
}

TEST(Analyze, CountsNormalizations) {
  EXPECT_EQ(counts_of(R"(
def f(x: float32[2, 3], w: float32[3], b: float32[3]):
    y = softmax(x)
    z = layernorm(y, w, b)
    r = rmsnorm(z, w)
    return r
)"),
            "y softmax: 30 flop, 6 in, 6 out\n"         // 5 an element: max, subtract, exp, sum, divide
            "z layernorm: 42 flop, 12 in, 10 out\n"     // 7 an element; mean and rstd are written too
            "r rmsnorm: 24 flop, 9 in, 8 out\n"         // 4 an element; rstd is written too
            "r rmsnorm dW: 18 flop, 14 in, 3 out\n"     // z, rstd, d_r
            "r rmsnorm d_z: 36 flop, 17 in, 6 out\n"    // and w
            "z layernorm dW: 24 flop, 16 in, 6 out\n"   // y, mean, rstd, d_z; d_w and d_b
            "z layernorm d_y: 54 flop, 19 in, 6 out\n"  // and w
            "y softmax d_x: 24 flop, 12 in, 6 out\n"
            "d_w sum: 3 flop, 6 in, 3 out\n");
}

TEST(Analyze, ADropoutWritesItsMaskAndReadsItBack) {
  EXPECT_EQ(counts_of("def f(x: float32[10]):\n    y = dropout(x)\n    return y\n"),
            "y dropout: 10 flop, 10 in, 20 out\ny dropout d_x: 10 flop, 20 in, 10 out\n");
}

TEST(Analyze, ATensorReadTwiceMovesOnce) {
  EXPECT_EQ(counts_of("def f(x: float32[4]):\n    y = x * x\n    return y\n"),
            "y multiply: 4 flop, 4 in, 4 out\n"
            "y multiply d_x: 4 flop, 8 in, 4 out\n"
            "y multiply d_x 2: 4 flop, 8 in, 4 out\n"
            "d_x sum: 4 flop, 8 in, 4 out\n");
}

TEST(Analyze, ScalarsConstantsAndScalesMoveNothing) {
  EXPECT_EQ(counts_of(R"(
def f(x: float32[2, 3], s: float32):
    y = s * np.einsum("ij,kj->ik", x, x)
    z = y + 1
    return z
)"),
            "y einsum: 24 flop, 6 in, 4 out\n"  // 2·2·2·3: the scale costs nothing
            "z add: 4 flop, 4 in, 4 out\n"
            "y einsum d_x: 24 flop, 10 in, 6 out\n"
            "y einsum d_x 2: 24 flop, 10 in, 6 out\n"
            "d_x sum: 6 flop, 12 in, 6 out\n");
}

TEST(Analyze, TotalsAreSumsByClassAndByPass) {
  const Analysis analysis = analysis_of(R"(
def f(x: float32[2, 3], w: float32[3, 4], b: float32[4]):
    y = softmax(relu(np.einsum("ij,jk->ik", x, w) + b))
    return y
)");
  int64_t flop = 0;
  int64_t words = 0;
  for (const OperatorAnalysis& row : analysis.operators) {
    flop += row.flop;
    words += row.words();
  }
  EXPECT_EQ(analysis.total.flop, flop);
  EXPECT_EQ(analysis.total.words(), words);
  EXPECT_EQ(analysis.total.operators, 9);
  const auto& [contraction, normalization, elementwise] = analysis.by_class;
  EXPECT_EQ(contraction.flop, 3 * 48);
  EXPECT_EQ(normalization.flop, 5 * 8 + 4 * 8 + 8);  // softmax, its gradient, the bias' sum
  EXPECT_EQ(elementwise.flop, 8);
  EXPECT_EQ(contraction.operators, 3);
  EXPECT_EQ(normalization.operators, 3);
  EXPECT_EQ(elementwise.operators, 3);
  EXPECT_EQ(analysis.by_pass[0].flop + analysis.by_pass[1].flop, flop);
  EXPECT_EQ(analysis.by_pass[0].operators, 4);
  EXPECT_EQ(analysis.saved_words, 8 + 8) << "relu's and softmax's outputs";
}

// --- I/O lower bounds ---

constexpr std::string_view kProduct = R"(
N = 64
def f(a: float32[N, N], b: float32[N, N]):
    return np.einsum("ij,jk->ik", a, b)
)";

int64_t bound_of_product(int64_t fast_memory_bytes) {
  return analysis_of(kProduct, fast_memory_bytes).operators.at(0).io_lower_bound;
}

TEST(Analyze, AContractionMovesItsOperandsAtLeastOnce) { EXPECT_EQ(bound_of_product(kFastMemory), 3 * 64 * 64); }

TEST(Analyze, WithLittleFastMemoryAContractionMovesTwoMnkOverTheRootOfIt) {
  EXPECT_EQ(bound_of_product(256), 2 * 64 * 64 * 64 / 8) << "64 words";
  EXPECT_EQ(bound_of_product(12), 302698) << "3 words: 524288 / √3, rounded up";
  EXPECT_EQ(bound_of_product(1), 2 * 64 * 64 * 64) << "one word at least";
}

TEST(Analyze, FastMemoryCountsWordsOfTheLargestArgument) {
  EXPECT_EQ(analysis_of("def f(x: float16[4]):\n    return -x\n", 64).fast_memory_words, 32);
  EXPECT_EQ(analysis_of("def f(x: float16[4], y: float64[4]):\n    return -x, -y\n", 64).fast_memory_words, 8);
}

TEST(Analyze, OtherOperatorsMoveTheirWordsOnceWithAnyFastMemory) {
  const Analysis analysis = analysis_of("def f(x: float32[100]):\n    return softmax(x)\n", 4);
  ASSERT_FALSE(analysis.operators.empty());
  for (const OperatorAnalysis& row : analysis.operators) EXPECT_EQ(row.io_lower_bound, row.words());
}

// --- Overflow ---

TEST(Analyze, TotalsBeyond64BitsAreAnError) {
  std::string text = "N = 2 ** 50\ndef f(x: float32[N]):\n";
  for (int k = 0; k < 600; ++k) text += "    x = gelu_tanh(x)\n";
  text += "    return x\n";
  const Result<Analysis> analysis = analyze(training_of(text), kFastMemory);
  ASSERT_FALSE(analysis);
  EXPECT_EQ(analysis.error().kind, ErrorKind::bad_input);
  EXPECT_EQ(analysis.error().diagnostics.at(0).message, "the program's flop or words do not fit into 64 bits");
}

TEST(Analyze, TheLargestProgramThatFitsIsCountedExactly) {
  const Analysis analysis = analysis_of("N = 2 ** 50\ndef f(x: float32[N]):\n    return gelu_tanh(x)\n");
  EXPECT_EQ(analysis.total.flop, 25 * (int64_t{1} << 50));
}

}  // namespace
}  // namespace millrace
