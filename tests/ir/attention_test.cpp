// Attentions found in program text, and why others are rejected.
#include "ir/attention.h"

#include <gtest/gtest.h>

#include "fusion/fusion_text.h"
#include "fusion/predicates.h"
#include "ir/attention_family.h"
#include "ir/attention_program.h"

namespace millrace {
namespace {

FoundAttentions found_in(const TrainingGraph& training) {
  return find_attentions(training.graph, callers_of(training));
}

// "q[batch 0 1, query 2, column 3]", by axes.
std::string print(const Graph& graph, const AttentionTensor& operand) {
  std::vector<std::string> parts;
  if (!operand.axes.batch.empty()) parts.push_back(concat("batch ", join(operand.axes.batch, " ")));
  if (operand.axes.query >= 0) parts.push_back(concat("query ", operand.axes.query));
  if (operand.axes.key >= 0) parts.push_back(concat("key ", operand.axes.key));
  if (operand.axes.column >= 0) parts.push_back(concat("column ", operand.axes.column));
  return concat(graph.tensor(operand.tensor).name, "[", join(parts, ", "), "]");
}

std::string print(const Graph& graph, const AttentionPattern& attention) {
  std::string text;
  for (const auto* const list : {&attention.forward, &attention.backward}) {
    std::vector<std::string> kinds;
    for (const OperatorId op : *list) kinds.emplace_back(info_of(graph.operators[op.at()].kind).name);
    text += concat(list == &attention.forward ? "forward " : "backward ", join(kinds, " "), "\n");
  }
  for (const AttentionTensor* const tensor : {&attention.q, &attention.k, &attention.v, &attention.o, &attention.d_o,
                                              &attention.d_q, &attention.d_k, &attention.d_v})
    text += concat(print(graph, *tensor), tensor == &attention.d_v ? "\n" : " ");
  text += print(graph, attention.logits);
  if (attention.mask.tensor.valid()) text += concat(" ", print(graph, attention.mask));
  text += concat(attention.window.is_causal() ? " causal" : "", "\n");
  std::vector<int64_t> extents;
  for (const DimId dim : attention.batch) extents.push_back(graph.extent(dim));
  return concat(text, "batch ", join(extents, " "), " queries ", graph.extent(attention.query), " keys ",
                graph.extent(attention.key), " inner ", graph.extent(attention.inner), " values ",
                graph.extent(attention.value), " scales ", attention.scales.size(), "\n");
}

std::string attentions_in(const TrainingGraph& training) {
  const FoundAttentions found = found_in(training);
  std::string text;
  for (const AttentionPattern& attention : found.attentions) text += print(training.graph, attention);
  for (const NoAttention& none : found.rejected) text += none.reason + "\n";
  return text;
}

std::string attentions_in(const AttentionProgram& program) { return attentions_in(training_of(program.text())); }

TEST(Attentions, OneIsFound) {
  EXPECT_EQ(attentions_in(AttentionProgram()),
            "forward contraction softmax dropout contraction\n"
            "backward contraction contraction dropout_dx softmax_dx contraction contraction\n"
            "q[batch 0 1, query 2, column 3] k[batch 0 1, key 2, column 3] v[batch 0 1, key 2, column 3] "
            "o[batch 0 1, query 2, column 3] d_o[batch 0 1, query 2, column 3] d_q[batch 0 1, query 2, column 3] "
            "d_k[batch 0 1, key 2, column 3] d_v[batch 0 1, key 2, column 3]\n"
            "s[batch 0 1, query 2, key 3] a.mask[batch 0 1, query 2, key 3]\n"
            "batch 2 3 queries 5 keys 7 inner 4 values 6 scales 1\n");
}

// Axes in any order, keys before queries, causal, without a dropout or a scale.
TEST(Attentions, AreFoundByTheirIndices) {
  AttentionProgram program;
  program.q = "pjbh";
  program.k = "hpkb";
  program.v = "whbk";
  program.scores = "hbjk";
  program.o = "bjhw";
  program.scale = "";
  program.weights = "softmax(causal_mask(s))";
  EXPECT_EQ(attentions_in(program),
            "forward contraction causal_mask softmax contraction\n"
            "backward contraction contraction softmax_dx causal_mask_dx contraction contraction\n"
            "q[batch 3 2, query 1, column 0] k[batch 0 3, key 2, column 1] v[batch 1 2, key 3, column 0] "
            "o[batch 2 0, query 1, column 3] d_o[batch 2 0, query 1, column 3] d_q[batch 3 2, query 1, column 0] "
            "d_k[batch 0 3, key 2, column 1] d_v[batch 1 2, key 3, column 0]\n"
            "a.1[batch 0 1, query 2, key 3] causal\n"
            "batch 3 2 queries 5 keys 7 inner 4 values 6 scales 0\n");
}

// The softmax determines the keys: here the first of the scores' last two axes, and the first operand.
TEST(Attentions, TheSoftmaxDeterminesTheKeys) {
  AttentionProgram program;
  program.scores = "bhkj";
  program.weights = "softmax(s, axis=2)";
  const std::string text = attentions_in(program);
  EXPECT_NE(text.find("s[batch 0 1, query 3, key 2]"), std::string::npos) << text;
  EXPECT_NE(text.find("q[batch 0 1, query 2, column 3] k[batch 0 1, key 2, column 3]"), std::string::npos) << text;
}

// Keys and values lack the indices that count a group of heads; wherever these are.
TEST(Attentions, HeadsOfAGroupShareKeysAndValues) {
  AttentionProgram program;
  program.q = "rbhjp";
  program.scores = "bhrjk";
  program.o = "bjhrw";
  program.weights = "softmax(causal_mask(s))";
  EXPECT_EQ(attentions_in(program),
            "forward contraction causal_mask softmax contraction\n"
            "backward contraction contraction softmax_dx causal_mask_dx contraction contraction\n"
            "q[batch 1 2 0, query 3, column 4] k[batch 0 1 -1, key 2, column 3] v[batch 0 1 -1, key 2, column 3] "
            "o[batch 0 2 3, query 1, column 4] d_o[batch 0 2 3, query 1, column 4] d_q[batch 1 2 0, query 3, column 4] "
            "d_k[batch 0 1 -1, key 2, column 3] d_v[batch 0 1 -1, key 2, column 3]\n"
            "a.1[batch 0 1 2, query 3, key 4] causal\n"
            "batch 2 3 2 queries 5 keys 7 inner 4 values 6 scales 1\n");
}

// The longest of the indices that only queries have counts rows, unless a causal mask decides otherwise.
TEST(Attentions, RowsAreTheLongestIndexOfQueries) {
  AttentionProgram program;
  program.q = "bhrjp";
  program.scores = "bhrjk";
  program.o = "bhrjw";
  EXPECT_NE(attentions_in(program).find("queries 5 keys 7"), std::string::npos) << attentions_in(program);
  program.scores = "bhjrk";
  program.o = "bhjrw";
  EXPECT_NE(attentions_in(program).find("queries 5 keys 7"), std::string::npos) << attentions_in(program);
  program.weights = "softmax(causal_mask(s))";
  EXPECT_NE(attentions_in(program).find("queries 2 keys 7"), std::string::npos) << attentions_in(program);
}

TEST(Attentions, WithoutABatch) {
  AttentionProgram program;
  program.q = "jp";
  program.k = "kp";
  program.v = "kw";
  program.scores = "jk";
  program.o = "wj";
  const std::string text = attentions_in(program);
  EXPECT_NE(text.find("q[query 0, column 1] k[key 0, column 1] v[key 0, column 1] o[query 1, column 0]"),
            std::string::npos)
      << text;
}

TEST(Attentions, InModels) {
  for (const std::string& model : models()) {
    for (const char* const size : {"tiny", "odd", "base", "large"}) {
      if (model == "encoder_decoder_attention" && std::string(size) == "odd") continue;  // one query
      const TrainingGraph training = training_of_model(model, {size});
      for (const TrainingGraph& graph : {training, save_predicates(training, true).training}) {
        const FoundAttentions found = found_in(graph);
        EXPECT_EQ(found.attentions.size(), 1U) << model << " " << size << attentions_in(graph);
        EXPECT_EQ(found.rejected.size(), 0U) << model << " " << size << attentions_in(graph);
      }
    }
  }
}

// Its halves are two indices of the columns.
TEST(Attentions, WithARotaryEmbedding) {
  for (const char* const size : {"tiny", "odd", "base", "large"}) {
    const TrainingGraph training = training_of_model("llama_block", {size});
    const FoundAttentions found = found_in(save_predicates(training, true).training);
    EXPECT_EQ(found.attentions.size(), 1U) << size << attentions_in(training);
  }
}

// The operators that recompute.h added belong to it: the softmax, and the mask before it.
TEST(Attentions, IncludeRecomputedOperators) {
  const TrainingGraph training = save_predicates(training_of_model("gpt2_block_unpacked", {"tiny"}), true).training;
  const std::string text = attentions_in(training);
  EXPECT_NE(text.find("backward causal_mask softmax contraction contraction dropout_dx softmax_dx causal_mask_dx "
                      "contraction contraction\n"),
            std::string::npos)
      << text;
}

TEST(Attentions, ARejectedOneHasAReason) {
  const auto expect = [](const std::string& reason, auto change) {
    AttentionProgram program;
    change(program);
    EXPECT_EQ(attentions_in(program), reason + "\n") << program.text();
  };
  using Program = AttentionProgram;
  expect("its values do not run along the batch indices of its keys", [](Program& p) {
    p.q = "bhgjp";
    p.v = "bhgkw";
    p.scores = "bhgjk";
    p.o = "bhgjw";
  });
  expect("its keys have more than one index", [](Program& p) {
    p.k = "bhgkp";
    p.v = "bhgkw";
    p.scores = "bhgjk";
  });
  expect("its scores are contracted over no index, or over more than two", [](Program& p) {
    p.q = "bhjprx";
    p.k = "bhkprx";
  });
  expect("its queries and keys do not run along their indices once each, with their columns side by side",
         [](Program& p) {
           p.q = "bhjpr";
           p.k = "bhkrp";
         });
  expect("its output is contracted over more than the keys", [](Program& p) { p.weights = "softmax(s, axis=2)"; });
  expect("its causal mask does not compare queries with keys", [](Program& p) {
    p.scores = "bhkj";
    p.weights = "softmax(causal_mask(s), axis=2)";
  });
  expect("its values have more than one index", [](Program& p) {
    p.v = "bhkwx";
    p.o = "bhjwx";
  });
  expect("its values do not run along the batch indices of its keys", [](Program& p) { p.v = "hkw"; });
  expect("its output is scaled", [](Program& p) { p.factor = "2 * "; });
  expect("its queries and keys are not two tensors", [](Program& p) {
    p.keys = 5;
    p.of_k = "q";
  });
  expect("its queries, keys and values are not three tensors", [](Program& p) {
    p.v = "bhkp";
    p.o = "bhjp";
    p.of_v = "k";
  });
}

TEST(Attentions, IntermediateTensorsHaveNoOtherReader) {
  const auto expect = [](const std::string& reason, auto change) {
    AttentionProgram program;
    change(program);
    EXPECT_EQ(attentions_in(program), reason + "\n") << program.text();
  };
  using Program = AttentionProgram;
  expect("the caller needs one of its intermediate tensors", [](Program& p) { p.results = "o, s"; });
  expect("the caller needs one of its intermediate tensors", [](Program& p) { p.results = "o, a"; });
  expect("another operator reads one of its intermediate tensors",
         [](Program& p) { p.results = "o, np.sum(s, axis=3)"; });
  expect("another operator reads one of its intermediate tensors",
         [](Program& p) { p.results = "o, np.sum(a, axis=3)"; });
}

// Exactly the gradients that are needed are found.
TEST(Attentions, HaveTheGradientsThatAreNeeded) {
  const auto gradients_of = [](const AttentionProgram& program) {
    const TrainingGraph training = training_of(program.text());
    const FoundAttentions found = found_in(training);
    EXPECT_EQ(found.attentions.size(), 1U) << program.text();
    EXPECT_EQ(found.rejected.size(), 0U) << program.text() << attentions_in(training);
    if (found.attentions.empty()) return std::string("none");
    const AttentionPattern& pattern = found.attentions.front();
    EXPECT_EQ(pattern.d_o.tensor.valid(), !pattern.backward.empty()) << program.text();
    std::string names;
    if (pattern.d_q.tensor.valid()) names += "q";
    if (pattern.d_k.tensor.valid()) names += "k";
    if (pattern.d_v.tensor.valid()) names += "v";
    if (pattern.d_term.tensor.valid()) names += "+term";
    return names;
  };
  std::vector<std::string> all;
  for (const NamedAttention& each : attentions_of_some_gradients()) all.push_back(gradients_of(each.program));
  EXPECT_EQ(join(all, " "), "q k v kv+term qv qk +term v");
  for (const NamedAttention& each : attentions_without_gradients()) {
    EXPECT_EQ(gradients_of(each.program), "");
    EXPECT_TRUE(found_in(training_of(each.program.text())).attentions.front().backward.empty());
  }
}

// A softmax that does not read a contraction, or that no contraction reads, is not rejected with a reason.
TEST(Attentions, OthersHaveNoReason) {
  EXPECT_EQ(attentions_in(training_of("def f(x: float32[3, 4]):\n    return softmax(x)\n")), "");
  EXPECT_EQ(attentions_in(training_of("def f(x: float32[3, 4], w: float32[4, 5]):\n    s = np.einsum(\"ij,jk->ik\", x, "
                                      "w)\n    return softmax(s)\n")),
            "");
  EXPECT_EQ(attentions_in(training_of("def f(x: float32[3, 4], w: float32[4, 5]):\n    return np.einsum(\"ij,jk->ik\", "
                                      "softmax(x), w)\n")),
            "");
}

}  // namespace
}  // namespace millrace
