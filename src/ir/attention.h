// Recognizes attention in a training graph: contraction, any elementwise operators, softmax, [dropout,] contraction,
// and the gradients that are needed: all, some or none. Groups of heads may share keys and values. Matches structure
// and indices, never names. Test: tests/ir/attention_test.cpp
#pragma once

#include <array>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/score_expression.h"
#include "ir/score_window.h"

namespace millrace {

// o = dropout(softmax(f(scale · q kᵀ))) v, with an elementwise f. Only its own operators read the intermediate tensors.
struct AttentionPattern {
  std::vector<OperatorId> forward;   // in the graph's order
  std::vector<OperatorId> backward;  // in the graph's order; includes recomputed forward operators; empty in inference
  std::vector<OperatorId> repeated;  // forward operators that others need too: positions
  OperatorId softmax;
  KeyWindow window;              // the keys that a query sees
  ScoreExpression score;         // f, without the masks that `window` describes
  ScoreExpression gradients;     // f and its gradients
  std::vector<TensorId> scales;  // of the scores
  AttentionTensor q, k, v, o;
  AttentionTensor d_o, d_q, d_k, d_v;  // invalid where no gradient is needed
  AttentionTensor d_term;  // the gradient of a term, summed over the batch indices that it lacks; invalid without one
  AttentionTensor logits;  // the softmax's input
  AttentionTensor mask;    // of the dropout; invalid if there is no dropout
  std::vector<DimId> batch;
  DimId query, key, inner, value;
  DimId outer_inner;  // if valid: the first of two inner indices
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
