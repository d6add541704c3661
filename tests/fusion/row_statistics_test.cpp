// Attentions get row statistics, and nothing else changes.
#include "fusion/row_statistics.h"

#include <gtest/gtest.h>

#include "autodiff/print.h"
#include "autodiff/verify.h"
#include "fusion/fusion_text.h"
#include "fusion/predicates.h"
#include "fusion/verify.h"
#include "ir/print.h"

namespace millrace {
namespace {

void expect_valid(const Recomputed& made) {
  const Result<Done> valid = verify(made.training);
  EXPECT_TRUE(valid) << to_string(valid.error());
  const Result<Done> fused = verify(made.training, made.fused);
  EXPECT_TRUE(fused) << to_string(fused.error());
}

std::string names(const Graph& graph, const std::vector<OperatorId>& operators) {
  std::vector<std::string> list;
  for (const OperatorId op : operators) list.push_back(graph.operators[op.at()].name);
  return join(list, ", ");
}

// Everything that refers to an operator by its id.
std::string described(const Recomputed& made) {
  const Graph& graph = made.training.graph;
  std::string text;
  for (const FusedOperator& group : made.fused.groups)
    text += concat(group.name, ": ", names(graph, group.members), ", ", group.words_after, " words\n");
  for (const Stacking& stacking : made.fused.stackings)
    text += concat(names(graph, stacking.contractions), " absorb ", names(graph, stacking.absorbed), "\n");
  for (const Epilogue& epilogue : made.fused.epilogues)
    text += concat(names(graph, {epilogue.contraction}), " absorbs ", names(graph, epilogue.absorbed), "\n");
  for (const JoinedStack& stack : made.fused.joined_stacks)
    text += concat(names(graph, stack.readers), " read a stack for ", names(graph, stack.operators), "\n");
  for (const Kept& kept : made.training.kept)
    text += concat(graph.tensor(kept.tensor).name, " for ", names(graph, kept.readers), "\n");
  return concat(text, "again ", names(graph, made.training.repeated), "\nbits ", names(graph, made.training.predicates),
                "\n", made.fused.words_before, " ", made.fused.words_after, " ", moved_words(made.fused), "\n");
}

TEST(RowStatistics, LeaveEverythingElseAsItWas) {
  std::vector<std::string> with_attention = models();
  with_attention.emplace_back("gpt2_block");  // its packed projection is joined in backward
  for (const std::string& model : with_attention) {
    const Recomputed before = save_predicates(training_of_model(model, {"tiny"}), true);
    const Recomputed after = add_row_statistics(before);
    expect_valid(after);
    EXPECT_EQ(described(after), described(before)) << model;
    const size_t count = after.training.statistics.size();
    EXPECT_EQ(count, 1U) << model;
    EXPECT_EQ(after.training.graph.operators.size(), before.training.graph.operators.size() + count) << model;
    EXPECT_EQ(after.training.graph.tensors.size(), before.training.graph.tensors.size() + count) << model;
    for (const OperatorId id : after.training.statistics) {
      EXPECT_EQ(after.training.graph.operators[id.at() + 1].pass, Pass::backward) << "not the last of forward";
      EXPECT_EQ(group_numbers(after.fused)[id.at()], after.fused.groups.size()) << "in a group";
    }
  }
}

std::string statistics_of(const TrainingGraph& training) {
  const Recomputed made = add_row_statistics(save_predicates(training, true));
  expect_valid(made);
  std::string text;
  for (const OperatorId id : made.training.statistics) {
    const Operator& op = made.training.graph.operators[id.at()];
    text += concat(op.name, ": ", print(made.training.graph, op), ", ",
                   name_of(made.training.graph.tensor(op.outputs[0].tensor).dtype), "\n");
  }
  return text;
}

TEST(RowStatistics, AreComputedFromTheSoftmaxsInput) {
  EXPECT_EQ(statistics_of(training_of_model("bert_encoder", {"tiny"})),
            "gamma log_sums: gamma.log_sums[H, B, J] = log_sum_exp(beta[H, B, J, K]) over K, float32\n");
  EXPECT_EQ(statistics_of(training_of_model("gpt2_block_unpacked", {"tiny"})),
            "gamma log_sums: gamma.log_sums[B, H, J] = log_sum_exp(weights.1[B, H, J, J']) over J', float32\n");
}

// One attention after the other.
TEST(RowStatistics, OfSeveralAttentions) {
  EXPECT_EQ(statistics_of(training_of(R"(
J = 5
K = 7
P = 4


def attend(q: float16[J, P], k: float16[K, P], v: float16[K, P]):
    o = np.einsum("jk,kp->jp", softmax(np.einsum("jp,kp->jk", q, k)), v)
    return o


def twice(q: float16[J, P], k: float16[K, P], v: float16[K, P], l: float16[K, P], w: float16[K, P]):
    return attend(attend(q, k, v), l, w)
)")),
            "result/o log_sums: result/o.log_sums[J] = log_sum_exp(result/o.1[J, K]) over K, float32\n"
            "result log_sums: result.log_sums[J] = log_sum_exp(result/o.1.4[J, K]) over K, float32\n");
}

// --- Invalid graphs ---

Recomputed sample() { return add_row_statistics(save_predicates(training_of_model("mha", {"tiny"}), true)); }

TEST(VerifyStatistics, AreForwardLogSumsWithoutReaders) {
  const auto complaint = [](auto change) {
    Recomputed made = sample();
    change(made);
    const Result<Done> checked = verify(made.training);
    return checked ? std::string() : checked.error().diagnostics.front().message;
  };
  EXPECT_EQ(complaint([](Recomputed&) {}), "");
  EXPECT_EQ(complaint([](Recomputed& made) { made.training.statistics[0] = OperatorId(size_t{0}); }),
            "invalid training graph: a statistic is not a log_sum_exp");
  EXPECT_EQ(complaint([](Recomputed& made) { made.training.statistics[0] = OperatorId(size_t{1000}); }),
            "invalid training graph: a statistic is not a log_sum_exp");
  EXPECT_NE(complaint([](Recomputed& made) {
              Graph& graph = made.training.graph;
              Operator reader = graph.operators[made.training.statistics[0].at()];
              const TensorId read = reader.outputs[0].tensor;
              reader.name = "reader";
              reader.kind = OperatorKind::copy;
              reader.space.pop_back();
              reader.reduced.pop_back();
              reader.inputs = {{read, {0, 1, 2}}};
              graph.tensors.push_back(graph.tensor(read));
              graph.tensors.back().name = "copy";
              reader.outputs = {{TensorId(graph.tensors.size() - 1), {0, 1, 2}}};
              graph.operators.insert(
                  graph.operators.begin() + static_cast<std::ptrdiff_t>(made.training.statistics[0].at() + 1), reader);
            }).find("reads a statistic, which only fused attention computes"),
            std::string::npos);
}

TEST(VerifyStatistics, AreInNoGroup) {
  Recomputed made = sample();
  made.fused.groups.front().members.push_back(made.training.statistics[0]);
  made.fused.groups.front().index_of.push_back({});
  EXPECT_FALSE(verify(made.training, made.fused));
  made = sample();
  made.training.statistics.clear();
  const Result<Done> checked = verify(made.training, made.fused);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().diagnostics.front().message, "invalid fused graph: an operator is in no group");
}

}  // namespace
}  // namespace millrace
