// Attentions in one piece: a part for each pass. Test: tests/candidates/attention_parts_test.cpp
#pragma once

#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"

namespace millrace {

// Forward leaves the rows' statistics in place of the softmax, so that either both run or none.
struct AttentionParts {
  Part forward;
  Part backward;
};

struct FoundAttentionParts {
  std::vector<AttentionParts> parts;
  std::vector<Declined> declined;  // what is nearly an attention
};

// Of the attentions whose statistics are in the graph. `callers`: one a tensor, whether it is in the caller's memory.
FoundAttentionParts find_attention_parts(const TrainingGraph& training, const std::vector<bool>& callers);

}  // namespace millrace
