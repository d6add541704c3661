// The predicates that are saved for a program, and the words that remain.
#include "fusion/predicates.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autodiff/verify.h"
#include "fusion/fusion_text.h"
#include "fusion/verify.h"
#include "random/fused_check.h"

namespace millrace {
namespace {

std::string saved_by(const TrainingGraph& training) {
  std::vector<std::string> names;
  for (const Kept& kept : training.kept) {
    if (kept.keeping == Keeping::saved) names.push_back(training.graph.tensor(kept.tensor).name);
  }
  return join(names, ", ");
}

// Lines like "hidden positive in bias-relu-…, read by …", the saved tensors, and the words with masks as bits.
std::string predicates_of(const TrainingGraph& training, bool epilogues = false) {
  const Recomputed made = save_predicates(training, epilogues);
  const Result<Done> valid = verify(made.training);
  EXPECT_TRUE(valid) << to_string(valid.error());
  const Result<Done> fused = verify(made.training, made.fused);
  EXPECT_TRUE(fused) << to_string(fused.error());
  if (made.training.predicates.empty()) return "nothing\n";
  const Graph& graph = made.training.graph;
  std::string text;
  for (const OperatorId id : made.training.predicates) {
    const Operator& op = graph.operators[id.at()];
    text += concat(op.name, " in ", group_with(made.training, made.fused, op.name).name, ", read by");
    for (const FusedOperator& group : made.fused.groups) {
      const bool reads = std::find(group.reads.begin(), group.reads.end(), op.outputs[0].tensor) != group.reads.end();
      if (reads) text += " " + group.name;
    }
    text += "\n";
  }
  return concat(text, "saved: ", saved_by(made.training), "\n", moved_words(recompute(training).fused), " to ",
                moved_words(made.fused), " words\n");
}

std::string predicates_of(std::string_view program, bool epilogues = false) {
  const TrainingGraph training = training_of(program);
  EXPECT_EQ(random_programs::check_fusion(training, 1), std::nullopt);
  return predicates_of(training, epilogues);
}

// The dropout's output is in memory for the next product; the backward kernel needs only its sign.
TEST(Predicates, OfModels) {
  for (const bool epilogues : {false, true})
    EXPECT_EQ(predicates_of(training_of_model("bert_encoder"), epilogues),
              "hidden positive in bias-relu-dropout-less, read by dropout_dx-relu_dx-bias_dw\n"
              "saved: qq, kk, vv, beta, alpha, alpha.mask, gamma, attn_dropped.mask, attn_residual, attn_norm, "
              "attn_norm.mean, attn_norm.rstd, hidden, hidden.mask, linear2_dropped.mask, linear2_residual, out.mean, "
              "out.rstd, hidden.positive\n"
              "906555392 to 891875328 words\n");
  EXPECT_EQ(predicates_of(training_of_model("gpt2_block_unpacked")), "nothing\n");
  EXPECT_EQ(predicates_of(training_of_model("llama_block_without_rope")), "nothing\n");
}

constexpr const char* kMlp = R"(
A = 32
B = 16


def mlp(x: float32[A, B], w: float32[B, B], b: float32[B], v: float32[B, B]):
    hidden = relu(np.einsum("ab,bc->ac", x, w) + b)
    return np.einsum("ab,bc->ac", hidden, v)
)";

// A product that absorbs bias and ReLU writes the tensor that backward reads: no kernel is left to make the comparison.
TEST(Predicates, AReluWithoutDropout) {
  EXPECT_EQ(predicates_of(kMlp),
            "hidden positive in bias-relu-less, read by relu_dx-bias_dw\n"
            "saved: hidden, hidden.positive\n"
            "10272 to 9824 words\n");
  EXPECT_EQ(predicates_of(kMlp, true), "nothing\n");
}

// If the ReLU's kernel has other operators too, it remains, and the ReLU's output need not be in memory.
TEST(Predicates, AReluBeforeSomethingElse) {
  EXPECT_EQ(predicates_of(R"(
A = 32
B = 16


def attention(x: float32[A, B], w: float32[B, B], b: float32[B], v: float32[B, B]):
    weights = softmax(relu(np.einsum("ab,bc->ac", x, w) + b))
    return np.einsum("ab,bc->ac", weights, v)
)",
                          true),
            "weights.1.3 positive in bias-relu-softmax-less, read by softmax_dx-relu_dx\n"
            "saved: weights, weights.1.3.positive\n"
            "11312 to 10848 words\n");
}

TEST(Predicates, AReluThatIsAResult) {
  EXPECT_EQ(predicates_of(R"(
A = 32
B = 16


def rectified(x: float32[A, B], w: float32[B, B], b: float32[B]):
    return relu(np.einsum("ab,bc->ac", x, w) + b)
)"),
            "result positive in bias-relu-less, read by relu_dx-bias_dw\n"
            "saved: result.positive\n"
            "6432 to 5984 words\n");
}

// The backward kernel reads the ReLU's output anyway.
TEST(Predicates, NotIfTheTensorIsReadAnyway) {
  EXPECT_EQ(predicates_of(R"(
A = 32
B = 16


def squared(x: float32[A, B], w: float32[B, B]):
    y = relu(np.einsum("ab,bc->ac", x, w))
    return np.einsum("ab,bc->ac", y * y, w)
)"),
            "nothing\n");
}

// Recomputed from other inputs of the kernel, at no words.
TEST(Predicates, NotIfRecomputingCostsNoWords) {
  EXPECT_EQ(predicates_of(R"(
A = 32
B = 16


def both(x: float32[A, B], w: float32[B, B]):
    y = np.einsum("ab,bc->ac", x, w)
    return np.einsum("ab,bc->ac", relu(y) + np.tanh(y), w)
)"),
            "nothing\n");
}

TEST(Predicates, AReluThatIsReadTwice) {
  EXPECT_EQ(predicates_of(R"(
A = 32
B = 16


def twice(x: float32[A, B], w: float32[B, B], v: float32[B, B]):
    y = relu(np.einsum("ab,bc->ac", x, w))
    return np.einsum("ab,bc->ac", y, v), np.einsum("ab,cb->ac", y, w)
)"),
            "y positive in relu-less, read by residual-relu_dx\n"
            "saved: y, y.positive\n"
            "15360 to 14912 words\n");
}

// Saves which operand is larger instead of both operands; once, though both gradients need it.
TEST(Predicates, AMaximumOfTwo) {
  EXPECT_EQ(predicates_of(R"(
A = 32
B = 16


def larger(x: float32[A, B], w: float32[B, B], v: float32[B, B]):
    one = np.einsum("ab,bc->ac", x, w)
    two = np.einsum("ab,bc->ac", x, v)
    return np.einsum("ab,bc->ac", np.maximum(one, two), v)
)"),
            "two less in maximum-less*2, read by copy*2-multiply-where*4\n"
            "one less in maximum-less*2, read by copy*2-multiply-where*4\n"
            "saved: result.1, two.less, one.less\n"
            "17920 to 17024 words\n");
}

TEST(Predicates, AMagnitude) {
  EXPECT_EQ(predicates_of(R"(
A = 32
B = 16


def magnitude(x: float32[A, B], w: float32[B, B]):
    return np.einsum("ab,bc->ac", np.abs(np.einsum("ab,bc->ac", x, w)), w)
)"),
            "result.1 less in absolute-less*2, read by copy-negate-copy-where*2\n"
            "result.1 positive in absolute-less*2, read by copy-negate-copy-where*2\n"
            "saved: result.1.2, result.1.less, result.1.positive\n"
            "11008 to 10624 words\n");
}

// A comparison of the program is a boolean already, and is saved as such.
TEST(Predicates, AComparisonOfTheProgramIsSavedAsItIs) {
  EXPECT_EQ(predicates_of(R"(
A = 32
B = 16


def leaky(x: float32[A, B], w: float32[B, B]):
    y = np.einsum("ab,bc->ac", x, w)
    return np.einsum("ab,bc->ac", np.where(y > 0, y, 0.1 * y), w)
)"),
            "nothing\n");
}

// An argument is not saved, but reading bits instead of it saves words.
TEST(Predicates, AnArgument) {
  EXPECT_EQ(predicates_of(R"(
A = 32
B = 16


def magnitude(x: float32[A, B], w: float32[B, B]):
    return np.einsum("ab,bc->ac", np.abs(x), w)
)"),
            "x less in absolute-less*2, read by copy-negate-copy-where*2\n"
            "x positive in absolute-less*2, read by copy-negate-copy-where*2\n"
            "saved: result.1, x.less, x.positive\n"
            "6400 to 6016 words\n");
}

// The gradient of a window reads y at [b, i - k, k], which forward may not.
TEST(Predicates, NotOfADiagonalOfAPart) {
  EXPECT_EQ(predicates_of(R"(
B = 2
W = 12


def windows(x: float64[B, W], kernel: float64[2, 2, 1]):
    y = relu(x * 2.0)
    return depthwise(np.lib.stride_tricks.sliding_window_view(y[None], 1, axis=-1), kernel, stride=3)
)"),
            "nothing\n");
}

TEST(Predicates, EveryLayerHasItsOwn) {
  ProgramOptions options;
  options.entry = "layers";
  const TrainingGraph training = training_of(R"(
A = 32
B = 16


def layer(x, w, v):
    return np.einsum("ab,bc->ac", dropout(relu(np.einsum("ab,bc->ac", x, w))), v)


def layers(x: float32[A, B], w: float32[B, B], v: float32[B, B]):
    return layer(layer(x, w, v), w, v)
)",
                                             options);
  EXPECT_EQ(save_predicates(training, true).training.predicates.size(), 2);
  EXPECT_EQ(random_programs::check_fusion(training, 1), std::nullopt);
}

}  // namespace
}  // namespace millrace
