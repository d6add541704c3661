// Fused attention lowered to a call of cuDNN.
#include "codegen/cuda/cudnn_call.h"

#include <gtest/gtest.h>

#include "candidates/enumerate.h"
#include "codegen/lower.h"
#include "fusion/fusion_text.h"
#include "fusion/predicates.h"
#include "fusion/row_statistics.h"
#include "ir/attention_program.h"

namespace millrace {
namespace {

TEST(CudnnCall, NamesOperandsAndFactors) {
  AttentionProgram program;
  program.weights = "softmax(causal_mask(s))";
  program.q = "bjhp";
  program.type = "bfloat16";
  std::string text = program.text();
  text.replace(text.find("P = 4"), 5, "P = 16");
  text.replace(text.find("W = 6"), 5, "W = 32");
  const Recomputed made = add_row_statistics(save_predicates(training_of(text), true));
  EnumerateOptions options;
  options.target = gpu_target();
  const Result<Candidates> found = find_partitions(made.training, made.fused, options);
  ASSERT_TRUE(found) << to_string(found.error());
  size_t passes = 0;
  for (const PartitionCandidates& entry : found->partitions) {
    const Partition& partition = entry.partition;
    if (partition.kind != PartitionKind::attention) continue;
    ++passes;
    std::vector<Layout> layouts;
    for (const TensorId tensor : tensors_of(partition)) layouts.push_back(written_layout(made.training.graph, tensor));
    const Launch launch = lower(made.training.graph, partition, layouts, CudnnConfig());
    EXPECT_TRUE(launch.is_library_attention());
    EXPECT_TRUE(launch.kernel.empty());
    ASSERT_EQ(launch.numbers.size(), 1U);
    EXPECT_EQ(launch.numbers.front().value, 0.5);
    const AttentionCall& call = launch.attention;
    EXPECT_EQ(call.backward, partition.attention.backward);
    EXPECT_TRUE(call.causal);
    EXPECT_EQ(call.type, StoredType::bf16);
    EXPECT_EQ((std::vector{call.batches, call.heads, call.key_heads, call.queries, call.keys, call.inner, call.values}),
              (std::vector<int64_t>{2, 3, 3, 5, 7, 16, 32}));
    EXPECT_EQ(call.strides[AttentionCall::q], (AttentionCall::Strides{5 * 3 * 16, 16, 3 * 16, 1}));
    EXPECT_EQ(call.strides[AttentionCall::v], (AttentionCall::Strides{3 * 7 * 32, 7 * 32, 32, 1}));
    const std::vector<TensorId> tensors = tensors_of(partition);
    for (size_t k = 0; k < AttentionCall::kOperands; ++k) {
      const bool there = call.has(static_cast<AttentionCall::Operand>(k));
      ASSERT_EQ(there, call.tensors[k] >= 0) << k;
      if (there) {
        EXPECT_EQ(tensors[static_cast<size_t>(call.tensors[k])], partition.attention.tensors[k]) << k;
      }
    }
  }
  EXPECT_EQ(passes, 2U);
}

}  // namespace
}  // namespace millrace
