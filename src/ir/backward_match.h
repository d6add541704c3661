// Matches the gradients of an attention whose forward pass is known. Tests: tests/ir/attention_test.cpp.
#pragma once

#include <map>
#include <vector>

#include "ir/forward_match.h"

namespace millrace {

class BackwardMatch : public ForwardMatch {
 public:
  using ForwardMatch::ForwardMatch;

 protected:
  // Why these are not the gradients of an attention; nullptr if they are.
  const char* match_backward();

  std::vector<TensorId> d_path_;             // the logits' gradient, and what elementwise operators make of it
  TensorId d_scores_;                        // one of them
  OperatorId d_term_;                        // the sum that is the gradient of a term; invalid if there is none
  std::map<TensorId, TensorId> recomputed_;  // from a recomputed copy in backward to the forward tensor

 private:
  static constexpr const char* kOtherGradients = "its gradients are not those of an attention";

  // --- Backward ---
  // Whether a tensor that backward reads is a forward tensor or a recomputed copy of it.
  bool is_copy_of(TensorId tensor, TensorId forward) const;
  // Whether a backward operator recomputes a forward one.
  bool repeats(const Operator& copy, const Operator& original) const;
  const char* match_recomputed();
  // The other of a contraction's two operands.
  TensorId other_operand(OperatorId contraction, TensorId one) const;
  // The contraction of these two operands over exactly these indices; invalid if there is none.
  OperatorId contraction_of(TensorId one, TensorId other, const Roles& over);
  // Records a contraction's result as the gradient of an operand.
  bool take_gradient(OperatorId contraction, AttentionTensor& into, const Roles& wanted);
  // The gradients of the values and of the weights.
  const char* match_output_gradients();
  // The forward tensor and its recomputed copies.
  std::vector<TensorId> copies_of(TensorId forward) const;
  // The gradients of the dropout and the softmax, in this order.
  const char* match_softmax_gradients();
  // What elementwise operators make of the logits' gradient.
  const char* match_chain_gradients();
  // The gradients of the queries and the keys.
  const char* match_score_gradients();
  // The gradient of a term: a sum over batch indices.
  const char* match_term_gradient();

  OperatorId d_chain_;  // the last operator of the softmax's gradients that was matched
};

}  // namespace millrace
