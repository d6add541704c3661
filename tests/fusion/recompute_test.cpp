// The operators that are recomputed for a program, and the words that remain.
#include "fusion/recompute.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autodiff/verify.h"
#include "candidates/gelu_program.h"
#include "fusion/fuse.h"
#include "fusion/fusion_text.h"
#include "fusion/verify.h"
#include "random/fused_check.h"

namespace millrace {
namespace {

// Lines like "weights softmax again in softmax-…", the tensors no longer saved and newly saved, and the words.
std::string recomputed(const TrainingGraph& training) {
  const Recomputed made = recompute(training);
  const Result<Done> valid = verify(made.training);
  EXPECT_TRUE(valid) << to_string(valid.error());
  const Result<Done> fused = verify(made.training, made.fused);
  EXPECT_TRUE(fused) << to_string(fused.error());
  std::string text;
  for (const OperatorId op : made.training.repeated) {
    const std::string& name = made.training.graph.operators[op.at()].name;
    text += concat(name, " in ", group_with(made.training, made.fused, name).name, "\n");
  }
  const auto saved = [](const TrainingGraph& step) {
    std::vector<std::string> names;
    for (const Kept& kept : step.kept) {
      if (kept.keeping == Keeping::saved) names.push_back(step.graph.tensor(kept.tensor).name);
    }
    return names;
  };
  const std::vector<std::string> before = saved(training);
  const std::vector<std::string> after = saved(made.training);
  const auto without = [](const std::vector<std::string>& all, const std::vector<std::string>& others) {
    std::vector<std::string> left;
    for (const std::string& name : all) {
      if (std::find(others.begin(), others.end(), name) == others.end()) left.push_back(name);
    }
    return join(left, ", ");
  };
  if (made.training.repeated.empty()) return "nothing\n";
  return concat(text, "saved no more: ", without(before, after), "\nsaved instead: ", without(after, before), "\n",
                fuse(training).words_after, " to ", made.fused.words_after, " words\n");
}

std::string recomputed(std::string_view program) {
  const TrainingGraph training = training_of(program);
  EXPECT_EQ(random_programs::check_fusion(training, 1), std::nullopt);
  return recomputed(training);
}

// Models at their default sizes. The softmax's input, a product's result of the same size, is saved instead.
TEST(Recompute, OfModels) {
  EXPECT_EQ(recomputed(training_of_model("bert_encoder")),
            "weights softmax again in softmax-dropout_dx-softmax_dx\n"
            "saved no more: weights\n"
            "saved instead: beta\n"
            "1050210304 to 1016655872 words\n");
  EXPECT_EQ(recomputed(training_of_model("gpt2_block_unpacked")),
            "weights causal_mask again in causal_mask-softmax-dropout_dx-softmax_dx-causal_mask_dx\n"
            "weights softmax again in causal_mask-softmax-dropout_dx-softmax_dx-causal_mask_dx\n"
            "linear1_biased bias again in bias-gelu_tanh_dx-bias_dw\n"
            "saved no more: weights, linear1_biased\n"
            "saved instead: beta, linear1\n"
            "2218021888 to 2092195840 words\n");
  // A backward contraction reads its softmax.
  EXPECT_EQ(recomputed(training_of_model("llama_block_without_rope")),
            "hidden silu again in silu-multiply*2-silu_dx\n"
            "saved no more: hidden.1\n"
            "saved instead: \n"
            "3160440832 to 3101720576 words\n");
}

// A product that can apply a tanh GELU, in half precision, also writes the GELU's input.
TEST(Recompute, NotTheAuxiliaryOutputOfAProduct) {
  const auto repeated = [](const TrainingGraph& training, bool epilogues) {
    std::vector<std::string> names;
    const Recomputed made = recompute(training, fuse(training), epilogues);
    EXPECT_TRUE(verify(made.training, made.fused));
    for (const OperatorId op : made.training.repeated) names.push_back(made.training.graph.operators[op.at()].name);
    return join(names, ", ");
  };
  const TrainingGraph block = training_of_model("gpt2_block_unpacked");
  EXPECT_EQ(repeated(block, false), "weights causal_mask again, weights softmax again, linear1_biased bias again");
  EXPECT_EQ(repeated(block, true), "weights causal_mask again, weights softmax again");
  std::string text = kGelus;
  EXPECT_EQ(repeated(training_of(text), true), "");
  text.replace(text.find("gelu_tanh"), 9, "gelu");
  EXPECT_EQ(repeated(training_of(text), true), "linear bias again") << "not the tanh GELU";
  text = kGelus;
  for (size_t at = text.find("float16"); at != std::string::npos; at = text.find("float16", at + 1))
    text.replace(at, 7, "float32");
  EXPECT_EQ(repeated(training_of(text), true), "linear bias again") << "in single precision";
}

// One tensor less is written and read, at no cost: the same kernel reads its input already.
TEST(Recompute, AnOperandThatIsReadAnyway) {
  EXPECT_EQ(recomputed(R"(
A = 6
B = 4


def gated(gate: float32[A, B], up: float32[A, B], w: float32[B, B]):
    active = silu(gate)
    return np.einsum("ab,bc->ac", active * up, w)
)"),
            "active silu again in silu-multiply*2-silu_dx\n"
            "saved no more: active\n"
            "saved instead: \n"
            "432 to 384 words\n");
}

// The same without the dropout between the softmax and the product: a backward contraction reads the softmax.
TEST(Recompute, InputsOfBackwardContractionsStaySaved) {
  const std::string program = R"(
A = 6
B = 4


def attention(x: float32[A, B], w: float32[B, B], v: float32[B, B]):
    beta = np.einsum("ab,bc->ac", x, w)
    weights = softmax(beta)
    return np.einsum("ab,bc->ac", DROPPED, v)
)";
  const auto with = [&](const std::string& dropped) {
    std::string text = program;
    return recomputed(text.replace(text.find("DROPPED"), 7, dropped));
  };
  EXPECT_EQ(with("weights"), "nothing\n");
  EXPECT_EQ(with("dropout(weights)"),
            "weights softmax again in softmax-dropout_dx-softmax_dx\n"
            "saved no more: weights\n"
            "saved instead: beta\n"
            "576 to 552 words\n");
}

TEST(Recompute, AResultStaysSaved) {
  EXPECT_EQ(recomputed(R"(
A = 6
B = 4


def attention(x: float32[A, B], w: float32[B, B]):
    return softmax(np.einsum("ab,bc->ac", x, w))
)"),
            "nothing\n");
}

// The dropout's output is only in registers, and would have to be saved instead of the softmax.
TEST(Recompute, AnOperandInRegistersIsNotSavedInstead) {
  EXPECT_EQ(recomputed(R"(
A = 6
B = 4


def dropped(x: float32[A, B], w: float32[B, B]):
    weights = softmax(dropout(np.einsum("ab,bc->ac", x, w)))
    return np.einsum("ab,bc->ac", dropout(weights), w)
)"),
            "nothing\n");
}

// Two operands as large as the tensor: reading both moves as much as writing and reading it.
TEST(Recompute, NotIfWordsStayTheSame) {
  EXPECT_EQ(recomputed(R"(
A = 6
B = 4


def summed(x: float32[A, B], w: float32[B, B], v: float32[B, B]):
    beta = np.einsum("ab,bc->ac", x, w) + np.einsum("ab,bc->ac", x, v)
    return np.einsum("ab,bc->ac", dropout(np.tanh(beta)), w)
)"),
            "nothing\n");
}

// Elements are compared with the maximum: both sides must be rounded, or neither.
TEST(Recompute, NotTheInputsOfAMaximumsGradient) {
  EXPECT_EQ(recomputed(R"(
A = 6
B = 4


def highest(x: float32[A, B], w: float32[B, B], shift: float32[B]):
    shifted = np.einsum("ab,bc->ac", x, w) + shift
    return np.max(shifted, axis=1)
)"),
            "nothing\n");
}

// A chain down to tensors in memory, including others that backward reads: each is recomputed once, in one kernel.
TEST(Recompute, OperatorsBetweenAreRecomputedToo) {
  const std::string text = recomputed(R"(
A = 6
B = 4


def by_hand(x: float32[A, B], w: float32[B, B], shift: float32[B]):
    y = np.einsum("ab,bc->ac", x, w) + shift
    activated = 0.5 * y * (1 + np.tanh(0.7978845608 * (y + 0.044715 * y * y * y)))
    return np.einsum("ab,bc->ac", activated, w)
)");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 9 + 3);
  EXPECT_EQ(text.substr(text.find("saved no more")),
            "saved no more: y, activated.1, activated.1.2, activated.1.3, activated.1.7, activated.1.8\n"
            "saved instead: y.1\n"
            "824 to 564 words\n");
}

// Twice the layers, twice the copies, with unique names.
TEST(Recompute, EveryLayerHasItsOwn) {
  ProgramOptions options;
  options.entry = "layers";
  const TrainingGraph training = training_of(R"(
A = 6
B = 4


def layer(x, w, v):
    weights = softmax(np.einsum("ab,bc->ac", x, w))
    return np.einsum("ab,bc->ac", dropout(weights), v)


def layers(x: float32[A, B], w: float32[B, B], v: float32[B, B]):
    return layer(layer(x, w, v), w, v)
)",
                                             options);
  EXPECT_EQ(recompute(training).training.repeated.size(), 2);
  EXPECT_EQ(random_programs::check_fusion(training, 1), std::nullopt);
}

}  // namespace
}  // namespace millrace
