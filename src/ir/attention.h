// Recognizes attention in a training graph: contraction, [causal_mask,] softmax, [dropout,] contraction, and all
// gradients. Groups of heads may share keys and values. Matches structure and indices, never names.
// Test: tests/ir/attention_test.cpp
#pragma once

#include <array>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace millrace {

// For each index of the attention, the axis of the operand that runs along it; -1 for none. Keys and values lack the
// batch indices that count a group of heads: these heads share them.
struct AttentionAxes {
  std::vector<int> batch;  // one per batch index
  int query = -1;
  int key = -1;
  int column = -1;  // the inner index for q, k and their gradients; the value index for v, o and theirs

  // The axis of the operand's rows, which are queries or keys.
  int row() const { return query >= 0 ? query : key; }
};

// A tensor, and which of its axes run along which indices of the attention.
struct AttentionTensor {
  TensorId tensor;
  AttentionAxes axes;
};

// o = dropout(softmax(causal_mask(scale · q kᵀ))) v. Only its own operators read the intermediate tensors.
struct AttentionPattern {
  std::vector<OperatorId> forward;   // in the order of the chain
  std::vector<OperatorId> backward;  // in the graph's order; includes recomputed forward operators
  OperatorId softmax;
  bool causal = false;
  std::vector<TensorId> scales;  // of the scores
  AttentionTensor q, k, v, o;
  AttentionTensor d_o, d_q, d_k, d_v;
  AttentionTensor logits;  // the softmax's input
  AttentionTensor mask;    // of the dropout; invalid if there is no dropout
  std::vector<DimId> batch;
  DimId query, key, inner, value;
};

// A softmax between two contractions that is not an attention, and why.
struct NoAttention {
  OperatorId softmax;
  std::string reason;
};

struct FoundAttentions {
  std::vector<AttentionPattern> attentions;  // in the order of their softmaxes
  std::vector<NoAttention> rejected;
};

// `leaves`, one per tensor: whether it is returned to the caller. Operators of kind log_sum_exp may read the logits.
FoundAttentions find_attentions(const Graph& graph, const std::vector<bool>& leaves);

}  // namespace millrace
