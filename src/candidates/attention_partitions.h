// Attentions in one piece: a partition for each pass. Test: tests/candidates/attention_partitions_test.cpp
#pragma once

#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"

namespace millrace {

// Forward leaves the rows' statistics in place of the softmax, so that either both run or none.
struct AttentionPartitions {
  Partition forward;
  Partition backward;
};

struct FoundAttentionPartitions {
  std::vector<AttentionPartitions> partitions;
  std::vector<Rejected> rejected;  // what is nearly an attention
};

// Of the attentions whose statistics are in the graph. `callers`: one a tensor, whether it is in the caller's memory.
FoundAttentionPartitions find_attention_partitions(const TrainingGraph& training, const std::vector<bool>& callers);

}  // namespace millrace
