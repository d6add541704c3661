// Fused attention: a partition for each pass. Test: tests/candidates/attention_partitions_test.cpp
#pragma once

#include <optional>
#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "fusion/fused_graph.h"

namespace millrace {

// Forward writes the rows' statistics instead of the softmax, so either both run or neither.
struct AttentionPartitions {
  Partition forward;
  std::optional<Partition> backward;  // nothing if no gradient is needed
};

struct FoundAttentionPartitions {
  std::vector<AttentionPartitions> partitions;
  std::vector<Rejected> rejected;  // softmaxes that are almost an attention
};

// Partitions for the attentions whose statistics are in the graph. `callers`: per tensor, whether it is in the caller's
// memory.
FoundAttentionPartitions find_attention_partitions(const TrainingGraph& training, const std::vector<bool>& callers);

// Both passes of each of them, for `millrace fuse`.
std::vector<AttentionAlternative> attention_alternatives(const TrainingGraph& training, const FusedGraph& fused);

}  // namespace millrace
