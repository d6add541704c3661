// cuDNN's fused attention as a candidate: for which attentions, in which layouts, with which axes.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "candidates/enumerate.h"
#include "candidates/row_partitions.h"
#include "fusion/fusion_text.h"
#include "fusion/predicates.h"
#include "fusion/row_statistics.h"
#include "ir/attention_program.h"

namespace millrace {
namespace {

class CudnnCandidates : public testing::Test {
 protected:
  // Sizes that fit the tensor cores.
  void take(const AttentionProgram& program, bool cudnn = true) {
    std::string text = program.text();
    for (const auto& [from, to] : {std::pair("J = 5", "J = 24"), std::pair("K = 7", "K = 40"),
                                   std::pair("P = 4", "P = 16"), std::pair("W = 6", "W = 32")})
      text.replace(text.find(from), std::string(from).size(), to);
    Recomputed made = add_row_statistics(save_predicates(training_of(text), true));
    options_.target = gpu_target();
    options_.target.gpu->cudnn = cudnn;
    Result<Candidates> found = find_partitions(made.training, made.fused, options_);
    ASSERT_TRUE(found) << to_string(found.error());
    training_ = std::move(made.training);
    candidates_ = std::move(*found);
    attentions_.clear();
    for (const PartitionCandidates& entry : candidates_.partitions) {
      if (entry.partition.kind != PartitionKind::attention || computes_rows(entry.partition)) continue;
      attentions_.push_back(entry);
      find_configs(graph(), candidates_.domains, options_, attentions_.back());
    }
    ASSERT_EQ(attentions_.size(), 2U);
  }

  const Graph& graph() const { return training_.graph; }

  static bool is_cudnn(const Candidate& candidate) { return std::holds_alternative<CudnnConfig>(candidate.config); }
  static std::vector<Candidate> by_cudnn(const PartitionCandidates& entry) {
    std::vector<Candidate> found;
    std::copy_if(entry.candidates.begin(), entry.candidates.end(), std::back_inserter(found), is_cudnn);
    return found;
  }
  static std::string reasons(const PartitionCandidates& entry) {
    std::string text;
    for (const Rejected& rejected : entry.rejected) text += rejected.reason + "\n";
    return text;
  }

  // "batches heads/key_heads; q strides; k strides" of every candidate, in forward.
  std::set<std::string> axes() const {
    std::set<std::string> found;
    const Partition& partition = attentions_.front().partition;
    for (const Candidate& candidate : by_cudnn(attentions_.front())) {
      const std::optional<CudnnAxes> axes =
          cudnn_axes(graph(), partition, layouts_of(candidates_.domains, partition, candidate));
      EXPECT_TRUE(axes);
      if (!axes) continue;
      const auto text = [&](Attention::Operand operand) {
        return join(std::vector<int64_t>(axes->strides[operand].begin(), axes->strides[operand].end()), " ");
      };
      found.insert(concat(axes->batches, " ", axes->heads, "/", axes->key_heads, "; ", text(Attention::q), "; ",
                          text(Attention::k)));
    }
    return found;
  }

  EnumerateOptions options_;
  TrainingGraph training_;
  Candidates candidates_;
  std::vector<PartitionCandidates> attentions_;
};

AttentionProgram without_dropout() {
  AttentionProgram program;
  program.weights = "softmax(s)";
  return program;
}

// The operands are computed, so that no caller pins their layouts.
AttentionProgram in_any_layout() {
  AttentionProgram program = without_dropout();
  program.of_q = "np.exp(q)";
  program.of_k = "np.exp(k)";
  program.of_v = "np.exp(v)";
  return program;
}

TEST_F(CudnnCandidates, AreOfferedWithContiguousColumns) {
  AttentionProgram program = in_any_layout();
  program.weights = "softmax(causal_mask(s))";
  take(program);
  for (const PartitionCandidates& entry : attentions_) {
    EXPECT_FALSE(by_cudnn(entry).empty()) << entry.partition.name;
    EXPECT_FALSE(is_cudnn(entry.candidates.front())) << "selected if nothing is measured";
    EXPECT_NE(reasons(entry).find("cuDNN: an attention without contiguous columns"), std::string::npos);
    for (const Candidate& candidate : by_cudnn(entry)) {
      for (const Layout& layout : layouts_of(candidates_.domains, entry.partition, candidate))
        EXPECT_TRUE(layout.order.size() == 3 || layout.order.back() == 3) << join(layout.order, "");
    }
  }
}

TEST_F(CudnnCandidates, AreReadBackAndAreCandidates) {
  take(without_dropout());
  for (const PartitionCandidates& entry : attentions_) {
    const Candidate candidate = by_cudnn(entry).front();
    const std::string text = print_candidate(candidates_.domains, entry.partition, candidate);
    EXPECT_TRUE(text.ends_with("; cudnn")) << text;
    const std::optional<Candidate> again = parse_candidate(candidates_.domains, entry.partition, text);
    ASSERT_TRUE(again) << text;
    EXPECT_EQ(again->layouts, candidate.layouts);
    EXPECT_TRUE(is_cudnn(*again));
    EXPECT_TRUE(is_candidate(graph(), candidates_.domains, entry.partition, *again));
    EXPECT_FALSE(parse_candidate(candidates_.domains, entry.partition, text + " 1"));
    for (const PartitionCandidates& other : candidates_.partitions) {
      if (other.partition.kind == PartitionKind::attention) continue;
      EXPECT_FALSE(parse_candidate(candidates_.domains, other.partition, text)) << other.partition.name;
    }
  }
}

TEST_F(CudnnCandidates, NoneWithoutTheLibrary) {
  take(without_dropout(), false);
  for (const PartitionCandidates& entry : attentions_) {
    EXPECT_TRUE(by_cudnn(entry).empty());
    EXPECT_EQ(reasons(entry).find("cuDNN"), std::string::npos);
  }
}

TEST_F(CudnnCandidates, NoneWithADropout) {
  take({});
  for (const PartitionCandidates& entry : attentions_) {
    EXPECT_TRUE(by_cudnn(entry).empty());
    EXPECT_NE(reasons(entry).find("cuDNN: an attention with dropout"), std::string::npos) << reasons(entry);
  }
}

// cuDNN does not know any other tensor that a partition may read.
TEST_F(CudnnCandidates, NoneWithAnotherOperand) {
  take(without_dropout());
  for (const PartitionCandidates& entry : attentions_) {
    EXPECT_FALSE(why_not_by_cudnn(graph(), entry.partition));
    Partition other = entry.partition;
    other.reads.push_back(graph().operators[other.operators.front().at()].outputs.front().tensor);
    EXPECT_TRUE(why_not_by_cudnn(graph(), other));
    Partition less = entry.partition;
    less.attention.tensors[Attention::v] = TensorId();
    EXPECT_TRUE(why_not_by_cudnn(graph(), less));
  }
}

TEST_F(CudnnCandidates, BatchesAndHeadsInAnyOrder) {
  take(in_any_layout());
  const std::set<std::string> found = axes();
  EXPECT_TRUE(found.contains("2 3/3; 1152 384 16 1; 1920 640 16 1"))
      << join(std::vector(found.begin(), found.end()), "\n");
  EXPECT_TRUE(found.contains("3 2/2; 768 384 16 1; 1280 640 16 1"));  // [h, b, ...]: heads are the inner index
}

// q [b, h, g, j, p] on k [b, h, k, p]: two indices of q's heads become one where they are adjacent.
TEST_F(CudnnCandidates, GroupedHeadsAreMergedWhereAdjacent) {
  AttentionProgram program = in_any_layout();
  program.q = "bhgjp";
  program.scores = "bhgjk";
  program.o = "bhgjw";
  take(program);
  const std::set<std::string> found = axes();
  EXPECT_TRUE(found.contains("2 9/3; 3456 384 16 1; 1920 640 16 1"))
      << join(std::vector(found.begin(), found.end()), "\n");
  for (const std::string& text : found) EXPECT_TRUE(text.starts_with("2 9/3; ") || text.starts_with("6 3/1; ")) << text;
}

// cuDNN is rejected even if only gradients go on to another operator, which reads nothing else.
TEST(CudnnRows, AreLeftToOtherKernels) {
  std::vector<NamedAttention> all = row_family();
  all.push_back(attention_of_rows("a scale of the gradients", "", lines("np.flip(q, axis=2) * 0.5", "k")));
  for (const NamedAttention& each : all) {
    const Recomputed made = add_row_statistics(save_predicates(training_of(each.program.text()), true));
    const std::vector<PartitionCandidates> partitions = rows_of(made);
    EXPECT_FALSE(partitions.empty()) << each.name;
    for (const PartitionCandidates& one : partitions) {
      if (!one.partition.attention.has_row_expressions()) continue;
      EXPECT_TRUE(why_not_by_cudnn(made.training.graph, one.partition)) << each.name << ", " << one.partition.name;
    }
  }
}

}  // namespace
}  // namespace millrace
