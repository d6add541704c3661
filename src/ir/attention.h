// Where a training graph has an attention: contraction, [causal_mask,] softmax, [dropout,] contraction, and all of its
// gradients. Found by structure and indices, never by names. Test: tests/ir/attention_test.cpp
#pragma once

#include <array>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace millrace {

// The axis of each of an operand's indices; -1: it does not run along it.
struct AttentionAxes {
  std::vector<int> batch;  // one a batch index
  int query = -1;
  int key = -1;
  int column = -1;  // the inner index of q, k and their gradients, the values' of v, o and theirs

  // That of an operand's rows, which are queries or keys.
  int row() const { return query >= 0 ? query : key; }
};

// A tensor, and which of its axes run along which indices of the attention.
struct AttentionTensor {
  TensorId tensor;
  AttentionAxes axes;
};

// o = dropout(softmax(causal_mask(scale · q kᵀ))) v. Nothing but its own operators reads what is between.
struct AttentionPattern {
  std::vector<OperatorId> forward;   // in the order of the chain
  std::vector<OperatorId> backward;  // in the graph's order; with what is computed again of forward
  OperatorId softmax;
  bool causal = false;
  std::vector<TensorId> scales;  // of the scores
  AttentionTensor q, k, v, o;
  AttentionTensor d_o, d_q, d_k, d_v;
  AttentionTensor logits;  // what the softmax reads
  AttentionTensor mask;    // of the dropout; invalid: there is none
  std::vector<DimId> batch;
  DimId query, key, inner, value;
};

// One that is nearly an attention, and why it is none.
struct NoAttention {
  OperatorId softmax;
  std::string reason;
};

struct FoundAttentions {
  std::vector<AttentionPattern> attentions;  // in the order of their softmaxes
  std::vector<NoAttention> rejected;
};

// `leaves`: one a tensor, whether the caller gets it. Operators of kind log_sum_exp may read the logits.
FoundAttentions find_attentions(const Graph& graph, const std::vector<bool>& leaves);

}  // namespace millrace
