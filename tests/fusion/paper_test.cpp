// The paper's layer at the paper's sizes: each of its kernels (section A.2) is inside one of ours, and ours move no
// more words.
#include <gtest/gtest.h>

#include <set>

#include "fusion/fusion_text.h"

namespace millrace {
namespace {

struct PaperKernel {
  std::string name;
  std::vector<std::string> operators;
};

const std::vector<PaperKernel>& paper_kernels() {
  static const std::vector<PaperKernel> kernels = {
      {"AIB", {"qq bias", "kk bias", "vv bias"}},
      {"SM", {"weights softmax", "alpha dropout"}},
      {"BDRLN", {"attn_biased bias", "attn_dropped dropout", "attn_residual residual", "attn_norm layernorm"}},
      {"BRD", {"linear1_biased bias", "activated relu", "hidden dropout"}},
      {"BDRLN", {"linear2_biased bias", "linear2_dropped dropout", "linear2_residual residual", "out layernorm"}},
      {"BSB", {"out layernorm dW"}},
      {"BLNRD", {"out layernorm d_linear2_residual", "linear2_dropped dropout d_linear2_biased"}},
      {"BDRB", {"hidden dropout d_activated", "activated relu d_linear1_biased", "linear1_biased bias d_b1"}},
      {"EBSB", {"d_attn_norm sum", "attn_norm layernorm dW"}},
      {"BLNRD", {"attn_norm layernorm d_attn_residual", "attn_dropped dropout d_attn_biased"}},
      {"BAOB", {"attn_biased bias d_bo"}},
      {"BS", {"alpha dropout d_weights", "weights softmax d_beta"}},
      {"BAIB", {"qq bias d_bq", "kk bias d_bk", "vv bias d_bv"}},
      {"BEI", {"d_x sum 3"}},
  };
  return kernels;
}

// The words that a set of operators moves as one kernel: its inputs, once, and its outputs needed outside.
int64_t words_together(const TrainingGraph& training, const std::set<OperatorId>& members) {
  const Graph& graph = training.graph;
  std::set<TensorId> needed(training.argument_gradients.begin(), training.argument_gradients.end());
  for (const Output& result : graph.results) needed.insert(result.tensor);
  std::set<TensorId> read;
  std::set<TensorId> written;
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    const bool inside = members.contains(OperatorId(k));
    for (const Access& input : graph.operators[k].inputs) (inside ? read : needed).insert(input.tensor);
    for (const Access& output : graph.operators[k].outputs) {
      if (inside) written.insert(output.tensor);
    }
  }
  int64_t words = 0;
  for (const TensorId tensor : read) words += written.contains(tensor) ? 0 : words_of(graph, tensor);
  for (const TensorId tensor : written) words += needed.contains(tensor) ? words_of(graph, tensor) : 0;
  return words;
}

class FusePaper : public testing::Test {
 protected:
  const TrainingGraph training_ = training_of_model("bert_encoder", {"large"});
  const FusedGraph fused_ = fuse(training_);

  double reduction(MaskStorage masks) const {
    const auto after = static_cast<double>(fused_.words_after_by_mask[static_cast<size_t>(masks)]);
    return 1 - after / static_cast<double>(fused_.words_before);
  }
};

TEST_F(FusePaper, EachOfItsKernelsIsInsideOneOfOurs) {
  for (const PaperKernel& kernel : paper_kernels()) {
    const FusedOperator& group = group_with(training_, fused_, kernel.operators.front());
    for (const std::string& name : kernel.operators) {
      EXPECT_TRUE(together(training_, fused_, kernel.operators.front(), name))
          << kernel.name << ": " << name << " is not with " << kernel.operators.front();
    }
    const std::vector<std::string> names = split(group.paper_name, '+');
    EXPECT_NE(std::find(names.begin(), names.end(), kernel.name), names.end())
        << kernel.name << " is shown as '" << group.paper_name << "'";
  }
}

// Only groups with the paper's kernels have the paper's names. The gradient of linear2's bias is in the paper's BDRB,
// though it shares no tensor with the rest of BDRB; its structure is that of BAOB.
TEST_F(FusePaper, NoOtherGroupHasItsNames) {
  for (const FusedOperator& group : fused_.groups) {
    std::set<std::string> expected;
    const std::vector<std::string> members = member_names(training_, group);
    for (const PaperKernel& kernel : paper_kernels()) {
      if (std::find(members.begin(), members.end(), kernel.operators.front()) != members.end())
        expected.insert(kernel.name);
    }
    if (std::find(members.begin(), members.end(), "linear2_biased bias d_b2") != members.end()) expected.insert("BAOB");
    for (const std::string& name : split(group.paper_name, '+')) {
      EXPECT_TRUE(name.empty() || expected.contains(name)) << group.name << " is called " << name;
    }
  }
}

TEST_F(FusePaper, MovesNoMoreThanItsGrouping) {
  std::set<OperatorId> placed;
  int64_t words = 0;
  for (const PaperKernel& kernel : paper_kernels()) {
    std::set<OperatorId> members;
    for (const std::string& name : kernel.operators) members.insert(operator_called(training_, name));
    words += words_together(training_, members);
    placed.insert(members.begin(), members.end());
  }
  int64_t separate = 0;
  for (size_t k = 0; k < training_.graph.operators.size(); ++k) {
    separate += words_together(training_, {OperatorId(k)});
    if (!placed.contains(OperatorId(k))) words += words_together(training_, {OperatorId(k)});
  }
  EXPECT_EQ(fused_.words_before, separate);
  EXPECT_LE(fused_.words_after, words);
}

TEST_F(FusePaper, ReducesMoreThanThePaper) {
  EXPECT_GE(reduction(MaskStorage::words), 0.2291);
  EXPECT_GT(reduction(MaskStorage::bits), reduction(MaskStorage::words));
  EXPECT_GT(reduction(MaskStorage::regenerated), reduction(MaskStorage::bits));
}

}  // namespace
}  // namespace millrace
