// Partitions of fused attention, and their choice points.
#include "candidates/attention_partitions.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "candidates/enumerate.h"
#include "candidates/partitions_text.h"
#include "candidates/row_partitions.h"
#include "fusion/fusion_text.h"
#include "fusion/predicates.h"
#include "fusion/row_statistics.h"
#include "ir/attention_program.h"

namespace millrace {
namespace {

EnumerateOptions with_cublaslt() {
  EnumerateOptions options;
  options.target = gpu_target();
  options.libraries = {GemmLibrary::cublaslt};
  return options;
}

struct Partitions {
  TrainingGraph training;
  Candidates candidates;
};

Partitions partitions_of(const Recomputed& made, const EnumerateOptions& options = with_cublaslt()) {
  Result<Candidates> found = find_partitions(made.training, made.fused, options);
  EXPECT_TRUE(found) << to_string(found.error());
  return {made.training, std::move(*found)};
}

Partitions partitions_of(const TrainingGraph& training) {
  return partitions_of(add_row_statistics(save_predicates(training, true)));
}

std::vector<const Partition*> attentions_in(const Candidates& candidates) {
  std::vector<const Partition*> found;
  for (const PartitionCandidates& entry : candidates.partitions) {
    if (entry.partition.kind == PartitionKind::attention) found.push_back(&entry.partition);
  }
  return found;
}

std::string axes_text(const Attention::Axes& axes) {
  return concat("[", join(axes.batch, " "), " | ", axes.query, " ", axes.key, " ", axes.column, "]");
}

// Operators and tensors, with the tensors' axes along batch | query, key, column.
std::string text_of(const Graph& graph, const Partition& partition) {
  const auto names = [&](const std::vector<OperatorId>& operators) {
    std::vector<std::string> list;
    for (const OperatorId op : operators) list.push_back(graph.operators[op.at()].name);
    return join(list, ", ");
  };
  std::string text = concat(partition.name, ", ", name_of(partition.pass), ": ", names(partition.operators), "\n");
  if (!partition.repeats.empty()) text += concat("repeats ", names(partition.repeats), "\n");
  for (const auto& [list, what] : {std::pair(&partition.reads, "reads"), std::pair(&partition.writes, "writes")}) {
    text += what;
    for (const TensorId tensor : *list) {
      text += concat(" ", graph.tensor(tensor).name);
      const Attention& attention = partition.attention;
      for (size_t k = 0; k < Attention::kOperands; ++k) {
        if (attention.tensors[k] == tensor) text += axes_text(attention.axes[k]);
      }
      if (attention.mask == tensor) text += axes_text(attention.mask_axes);
    }
    text += "\n";
  }
  const Attention& attention = partition.attention;
  EXPECT_TRUE(partition.members.empty() && partition.space.empty());
  EXPECT_EQ(attention.backward, partition.pass == Pass::backward);
  return concat(text, "batch ", join(attention.batch, " "), ", ", attention.queries, " by ", attention.keys, ", inner ",
                attention.inner, ", values ", attention.values, ", scales ", attention.scales.size(),
                attention.causal ? ", causal" : "", "\n");
}

std::string attentions_of(const TrainingGraph& training) {
  const Partitions made = partitions_of(training);
  std::string text;
  for (const Partition* const partition : attentions_in(made.candidates))
    text += text_of(made.training.graph, *partition);
  return text;
}

TEST(AttentionPartitions, OfBert) {
  EXPECT_EQ(attentions_of(training_of_model("bert_encoder", {"tiny"})),
            "attention (gamma), forward: beta einsum, weights softmax, alpha dropout, gamma einsum, gamma log_sums\n"
            "reads qq[1 2 | 3 -1 0] kk[1 2 | -1 3 0] vv[1 2 | -1 3 0]\n"
            "writes gamma[1 2 | 3 -1 0] gamma.log_sums[0 1 | 2 -1 -1] alpha.mask[0 1 | 2 3 -1]\n"
            "batch 2 2, 8 by 8, inner 4, values 4, scales 1\n"
            "attention (gamma with qq, kk), forward: qq bias, kk bias, beta einsum, weights softmax, alpha dropout, "
            "gamma einsum, gamma log_sums\n"
            "reads q_projected[1 2 | 3 -1 0] k_projected[1 2 | -1 3 0] vv[1 2 | -1 3 0] bq bk\n"
            "writes gamma[1 2 | 3 -1 0] gamma.log_sums[0 1 | 2 -1 -1] alpha.mask[0 1 | 2 3 -1]\n"
            "batch 2 2, 8 by 8, inner 4, values 4, scales 1\n"
            "attention_dx (gamma), backward: weights softmax again, gamma einsum d_vv, gamma einsum d_alpha, alpha "
            "dropout d_weights, weights softmax d_beta, beta einsum d_kk, beta einsum d_qq\n"
            "repeats beta einsum, weights softmax, alpha dropout, gamma einsum, gamma log_sums\n"
            "reads qq[1 2 | 3 -1 0] kk[1 2 | -1 3 0] vv[1 2 | -1 3 0] gamma[1 2 | 3 -1 0] "
            "gamma.log_sums[0 1 | 2 -1 -1] d_gamma[1 2 | 3 -1 0] alpha.mask[0 1 | 2 3 -1]\n"
            "writes d_qq[1 2 | 3 -1 0] d_kk[1 2 | -1 3 0] d_vv[1 2 | -1 3 0]\n"
            "batch 2 2, 8 by 8, inner 4, values 4, scales 1\n"
            "attention_dx (gamma with qq, kk), backward: weights softmax again, gamma einsum d_vv, gamma einsum "
            "d_alpha, alpha dropout d_weights, weights softmax d_beta, beta einsum d_kk, beta einsum d_qq\n"
            "repeats qq bias, kk bias, beta einsum, weights softmax, alpha dropout, gamma einsum, gamma log_sums\n"
            "reads q_projected[1 2 | 3 -1 0] k_projected[1 2 | -1 3 0] vv[1 2 | -1 3 0] bq bk gamma[1 2 | 3 -1 0] "
            "gamma.log_sums[0 1 | 2 -1 -1] d_gamma[1 2 | 3 -1 0] alpha.mask[0 1 | 2 3 -1]\n"
            "writes d_qq[1 2 | 3 -1 0] d_kk[1 2 | -1 3 0] d_vv[1 2 | -1 3 0]\n"
            "batch 2 2, 8 by 8, inner 4, values 4, scales 1\n");
}

TEST(AttentionPartitions, OfGpt2) {
  EXPECT_EQ(
      attentions_of(training_of_model("gpt2_block_unpacked", {"tiny"})),
      "attention (gamma), forward: beta einsum, weights causal_mask, weights softmax, alpha dropout, gamma einsum, "
      "gamma log_sums\n"
      "reads qq[0 2 | 1 -1 3] kk[0 2 | -1 1 3] vv[0 2 | -1 1 3]\n"
      "writes gamma[0 2 | 1 -1 3] gamma.log_sums[0 1 | 2 -1 -1] alpha.mask[0 1 | 2 3 -1]\n"
      "batch 2 2, 8 by 8, inner 4, values 4, scales 1, causal\n"
      "attention (gamma with qq, kk), forward: qq bias, kk bias, beta einsum, weights causal_mask, weights softmax, "
      "alpha dropout, gamma einsum, gamma log_sums\n"
      "reads q_projected[0 2 | 1 -1 3] k_projected[0 2 | -1 1 3] vv[0 2 | -1 1 3] bq bk\n"
      "writes gamma[0 2 | 1 -1 3] gamma.log_sums[0 1 | 2 -1 -1] alpha.mask[0 1 | 2 3 -1]\n"
      "batch 2 2, 8 by 8, inner 4, values 4, scales 1, causal\n"
      "attention_dx (gamma), backward: weights causal_mask again, weights softmax again, gamma einsum d_alpha, "
      "gamma einsum d_vv, alpha dropout d_weights, weights softmax d_weights.1, weights causal_mask d_beta, beta "
      "einsum d_qq, beta einsum d_kk\n"
      "repeats beta einsum, weights causal_mask, weights softmax, alpha dropout, gamma einsum, gamma log_sums\n"
      "reads qq[0 2 | 1 -1 3] kk[0 2 | -1 1 3] vv[0 2 | -1 1 3] gamma[0 2 | 1 -1 3] "
      "gamma.log_sums[0 1 | 2 -1 -1] d_gamma[0 2 | 1 -1 3] alpha.mask[0 1 | 2 3 -1]\n"
      "writes d_qq[0 2 | 1 -1 3] d_kk[0 2 | -1 1 3] d_vv[0 2 | -1 1 3]\n"
      "batch 2 2, 8 by 8, inner 4, values 4, scales 1, causal\n"
      "attention_dx (gamma with qq, kk), backward: weights causal_mask again, weights softmax again, gamma einsum "
      "d_alpha, gamma einsum d_vv, alpha dropout d_weights, weights softmax d_weights.1, weights causal_mask d_beta, "
      "beta einsum d_qq, beta einsum d_kk\n"
      "repeats qq bias, kk bias, beta einsum, weights causal_mask, weights softmax, alpha dropout, gamma einsum, gamma "
      "log_sums\n"
      "reads q_projected[0 2 | 1 -1 3] k_projected[0 2 | -1 1 3] vv[0 2 | -1 1 3] bq bk gamma[0 2 | 1 -1 3] "
      "gamma.log_sums[0 1 | 2 -1 -1] d_gamma[0 2 | 1 -1 3] alpha.mask[0 1 | 2 3 -1]\n"
      "writes d_qq[0 2 | 1 -1 3] d_kk[0 2 | -1 1 3] d_vv[0 2 | -1 1 3]\n"
      "batch 2 2, 8 by 8, inner 4, values 4, scales 1, causal\n");
}

// The keys' axis need not be the logits' last.
TEST(AttentionPartitions, StatisticsRunAlongTheOtherAxes) {
  AttentionProgram program;
  program.scores = "hkbj";
  program.weights = "softmax(s, axis=1)";
  const std::string text = attentions_of(training_of(program.text()));
  EXPECT_NE(text.find("o.log_sums[0 1 | 2 -1 -1]"), std::string::npos) << text;
  program.scores = "jbkh";
  program.weights = "softmax(s, axis=2)";
  const std::string other = attentions_of(training_of(program.text()));
  EXPECT_NE(other.find("o.log_sums[1 2 | 0 -1 -1]"), std::string::npos) << other;
}

// Biases of q and k are rows that the attention can compute, in a further alternative.
size_t attentions_of_model(const std::string& model) { return model == "llama_block_without_rope" ? 1 : 2; }

TEST(AttentionPartitions, AreForAGpuAndWithStatistics) {
  for (const std::string& model : models()) {
    const Recomputed without = save_predicates(training_of_model(model, {"tiny"}), true);
    EXPECT_TRUE(attentions_in(partitions_of(without).candidates).empty()) << model;
    EXPECT_TRUE(attentions_in(partitions_of(add_row_statistics(without), {}).candidates).empty()) << model;
    EXPECT_EQ(attentions_in(partitions_of(add_row_statistics(without)).candidates).size(),
              2 * attentions_of_model(model))
        << model;
  }
}

TEST(AttentionPartitions, EveryRejectionHasItsReason) {
  AttentionProgram program;
  program.q = "bhjprx";
  program.k = "bhkprx";
  const Partitions made = partitions_of(training_of(program.text()));
  const bool told =
      std::any_of(made.candidates.rejected.begin(), made.candidates.rejected.end(), [](const Rejected& d) {
        return d.reason == "attention around a softmax: its scores are contracted over no index, or over more than two";
      });
  EXPECT_TRUE(told);
}

// --- Choice points ---

std::set<std::string> names_of(const Candidates& candidates, const std::vector<int>& alternative) {
  std::set<std::string> names;
  for (const int partition : alternative)
    names.insert(candidates.partitions[static_cast<size_t>(partition)].partition.name);
  return names;
}

bool has_attention(const std::set<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.starts_with("attention"); });
}

// Every alternative carries out each operator once, and the statistics if and only if it has the attention.
void expect_whole(const Partitions& made) {
  std::set<OperatorId> statistics(made.training.statistics.begin(), made.training.statistics.end());
  std::map<OperatorId, int> in_choice_points;
  for (const ChoicePoint& choice_point : made.candidates.choice_points) {
    std::optional<std::set<OperatorId>> first;
    for (const std::vector<int>& alternative : choice_point.alternatives) {
      std::multiset<OperatorId> operators;
      for (const int partition : alternative) {
        const std::vector<OperatorId>& own =
            made.candidates.partitions[static_cast<size_t>(partition)].partition.operators;
        operators.insert(own.begin(), own.end());
      }
      const std::set<std::string> names = names_of(made.candidates, alternative);
      std::ptrdiff_t carried = 0;
      for (const OperatorId statistic : statistics) carried += static_cast<std::ptrdiff_t>(operators.erase(statistic));
      std::ptrdiff_t forward = 0;
      std::ptrdiff_t backward = 0;
      for (const std::string& name : names) {
        forward += name.starts_with("attention (") ? 1 : 0;
        backward += name.starts_with("attention_dx (") ? 1 : 0;
        if (name.starts_with("attention (")) {
          EXPECT_TRUE(names.contains(concat("attention_dx", name.substr(9)))) << name;
        }
      }
      EXPECT_EQ(forward, backward) << "one pass without the other";
      EXPECT_EQ(forward, carried);
      const std::set<OperatorId> each(operators.begin(), operators.end());
      EXPECT_EQ(each.size(), operators.size()) << "an operator is carried out twice";
      if (!first) {
        first = each;
        for (const OperatorId op : each) ++in_choice_points[op];
        EXPECT_FALSE(has_attention(names)) << "the default is what it was";
      }
      EXPECT_EQ(each, *first);
    }
  }
  EXPECT_EQ(in_choice_points.size() + statistics.size(), made.training.graph.operators.size());
  for (const auto& [op, count] : in_choice_points) EXPECT_EQ(count, 1);
}

// Nothing else is lost: each partition is as it was, and so is each alternative of each choice point.
void expect_nothing_lost(const Partitions& before, const Partitions& after) {
  const auto described = [](const Partitions& made) {
    std::set<std::string> texts;
    for (const PartitionCandidates& partition : made.candidates.partitions) {
      std::string text = partition.partition.name;
      for (const TensorId tensor : tensors_of(partition.partition))
        text += concat(" ", made.training.graph.tensor(tensor).name);
      if (partition.partition.kind != PartitionKind::attention) texts.insert(text);
    }
    return texts;
  };
  EXPECT_EQ(described(after), described(before));
  for (const ChoicePoint& choice_point : before.candidates.choice_points) {
    for (const std::vector<int>& alternative : choice_point.alternatives) {
      const std::set<std::string> wanted = names_of(before.candidates, alternative);
      const bool there = std::any_of(
          after.candidates.choice_points.begin(), after.candidates.choice_points.end(), [&](const ChoicePoint& now) {
            return std::any_of(now.alternatives.begin(), now.alternatives.end(), [&](const std::vector<int>& other) {
              const std::set<std::string> names = names_of(after.candidates, other);
              return std::includes(names.begin(), names.end(), wanted.begin(), wanted.end());
            });
          });
      EXPECT_TRUE(there) << join(std::vector<std::string>(wanted.begin(), wanted.end()), "; ");
    }
  }
}

size_t alternatives_with_attention(const Partitions& made) {
  size_t count = 0;
  for (const ChoicePoint& choice_point : made.candidates.choice_points) {
    for (const std::vector<int>& alternative : choice_point.alternatives)
      count += has_attention(names_of(made.candidates, alternative)) ? 1 : 0;
  }
  return count;
}

// One that computes its biases ties the kernels of the biases to it: one choice point has both attentions, and one
// alternative each for every choice that the biases leave.
void expect_both_attentions(const Partitions& made) {
  size_t choice_points = 0;
  for (const ChoicePoint& choice_point : made.candidates.choice_points) {
    size_t without = 0;
    size_t with = 0;
    for (const std::vector<int>& alternative : choice_point.alternatives) {
      const std::set<std::string> names = names_of(made.candidates, alternative);
      if (names.contains("attention (gamma)")) ++without;
      if (names.contains("attention (gamma with qq, kk)")) ++with;
      EXPECT_FALSE(names.contains("attention (gamma)") && names.contains("attention (gamma with qq, kk)"));
    }
    if (without + with == 0) continue;
    ++choice_points;
    EXPECT_GT(without, 0U);
    EXPECT_GT(with, 0U);
  }
  EXPECT_EQ(choice_points, 1U);
}

TEST(AttentionChoicePoints, OfModels) {
  for (const std::string& model : models()) {
    const Recomputed without = save_predicates(training_of_model(model, {"tiny"}), true);
    const Partitions before = partitions_of(without);
    const Partitions after = partitions_of(add_row_statistics(without));
    expect_whole(after);
    expect_nothing_lost(before, after);
    if (attentions_of_model(model) > 1) {
      expect_both_attentions(after);
      continue;
    }
    EXPECT_EQ(alternatives_with_attention(after), 1U) << model;
    // Its kernels of forward and of backward have two alternatives each.
    const bool found = std::any_of(after.candidates.choice_points.begin(), after.candidates.choice_points.end(),
                                   [&](const ChoicePoint& choice_point) {
                                     return choice_point.alternatives.size() == 5 &&
                                            has_attention(names_of(after.candidates, choice_point.alternatives.back()));
                                   });
    EXPECT_TRUE(found) << model;
  }
}

// --- Rows that attentions compute ---

std::string tensors_text(const Graph& graph, const std::vector<TensorId>& tensors) {
  std::vector<std::string> names;
  for (const TensorId tensor : tensors) names.push_back(graph.tensor(tensor).name);
  return join(names, " ");
}

EnumerateOptions on_cpu() {
  EnumerateOptions options;
  options.target = cpu_target();
  return options;
}

// Llama's rotary embeddings: an alternative next to the attention that reads rotated queries and keys.
TEST(AttentionRows, OfLlama) {
  const Recomputed without = save_predicates(training_of_model("llama_block", {"tiny"}), false);
  const Partitions before = partitions_of(without, on_cpu());
  const Partitions after = partitions_of(add_row_statistics(without), on_cpu());
  expect_whole(after);
  expect_nothing_lost(before, after);
  std::string text;
  for (const Partition* const partition : attentions_in(after.candidates))
    text += concat(partition->name, ": ", tensors_text(after.training.graph, partition->reads), " to ",
                   tensors_text(after.training.graph, partition->writes), "\n");
  EXPECT_EQ(text,
            "attention (gamma): qq kk vv to gamma gamma.log_sums\n"
            "attention (gamma with qq, kk): q_projected k_projected vv cos sin to gamma gamma.log_sums\n"
            "attention_dx (gamma): qq kk vv gamma gamma.log_sums d_gamma to d_qq d_kk d_vv\n"
            "attention_dx (gamma with qq, kk): q_projected k_projected vv cos sin gamma gamma.log_sums d_gamma to "
            "d_q_projected.sum d_k_projected.sum d_vv\n");
  size_t found = 0;
  for (const ChoicePoint& choice_point : after.candidates.choice_points) {
    for (const std::vector<int>& alternative : choice_point.alternatives) {
      const std::set<std::string> names = names_of(after.candidates, alternative);
      if (!names.contains("attention (gamma with qq, kk)")) continue;
      ++found;
      EXPECT_TRUE(names.contains("attention_dx (gamma with qq, kk)"));
      EXPECT_EQ(std::count_if(names.begin(), names.end(),
                              [](const std::string& name) { return name.find("qq multiply") != std::string::npos; }),
                0);
    }
  }
  EXPECT_EQ(found, 1U);
}

TEST(AttentionRows, OnAGpuAreAnAlternativeToo) {
  const Partitions made =
      partitions_of(add_row_statistics(save_predicates(training_of_model("llama_block", {"tiny"}), true)));
  expect_whole(made);
  std::set<std::string> names;
  for (const Partition* const partition : attentions_in(made.candidates)) names.insert(partition->name);
  EXPECT_EQ(names, (std::set<std::string>{"attention (gamma)", "attention_dx (gamma)", "attention (gamma with qq, kk)",
                                          "attention_dx (gamma with qq, kk)"}));
}

constexpr const char* kShared = R"(
J = 5
K = 7
P = 4


def attend(q: float16[J, P], k: float16[K, P], v: float16[K, P]):
    return np.einsum("jk,kp->jp", dropout(softmax(np.einsum("jp,kp->jk", q, k))), v)


)";

// Two layers are two choice points; attentions of the same queries are tied by possible stacks.
TEST(AttentionChoicePoints, OfSeveralAttentions) {
  const auto tried = [](const std::string& program) {
    const Recomputed without = save_predicates(training_of(concat(kShared, program)), true);
    const Partitions before = partitions_of(without);
    const Partitions after = partitions_of(add_row_statistics(without));
    EXPECT_EQ(after.training.statistics.size(), 2U);
    expect_whole(after);
    expect_nothing_lost(before, after);
    return after;
  };
  const Partitions layers = tried(
      "def layers(q: float16[J, P], k: float16[K, P], v: float16[K, P], l: float16[K, P], w: float16[K, P]):\n"
      "    return attend(attend(q, k, v), l, w)\n");
  EXPECT_EQ(attentions_in(layers.candidates).size(), 4U);
  EXPECT_EQ(alternatives_with_attention(layers), 2U);
  // Possible stacks would tie both attentions into one choice point, which is too large: they are rejected with a
  // reason.
  const Partitions siblings = tried(
      "def siblings(q: float16[J, P], k: float16[K, P], v: float16[K, P], l: float16[K, P], w: float16[K, P]):\n"
      "    return attend(q, k, v) + attend(q, l, w)\n");
  EXPECT_TRUE(attentions_in(siblings.candidates).empty());
  const bool told = std::any_of(siblings.candidates.rejected.begin(), siblings.candidates.rejected.end(),
                                [](const Rejected& d) { return d.reason.find("too many to try") < 200; });
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace millrace
