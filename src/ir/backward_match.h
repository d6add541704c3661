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
  // Why these are not the gradients of an attention; nullptr if they are, or if none is needed.
  const char* match_backward();

  std::vector<TensorId>
      d_path_;         // the logits' gradient, and what elementwise operators make of it; empty if not needed
  TensorId d_scores_;  // one of them; invalid if neither queries nor keys have a gradient
  OperatorId d_term_;  // the sum that is the gradient of a term; invalid if there is none
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
  // Whether backward reads any intermediate tensor.
  bool is_differentiated() const;
  // Records an operand of a contraction, whose indices are known, as the output's gradient.
  bool take_output_gradient(OperatorId contraction, size_t input, const Roles& indices);
  // The gradient of the values, if it is needed.
  const char* match_values_gradient();
  // The forward tensor and its recomputed copies.
  std::vector<TensorId> copies_of(TensorId forward) const;
  // The gradients of the softmax, the dropout and the weights, if one of the operands of the scores needs them.
  const char* match_softmax_gradients();
  // The operator that makes the logits' gradient; invalid if none or several do.
  OperatorId find_softmax_gradient() const;
  const char* match_weights_gradient(TensorId d_weights);
  // The gradients that elementwise operators compute from the logits' gradient.
  const char* match_chain_gradients();
  // The gradients of the queries and the keys, if they are needed.
  const char* match_score_gradients();
  // The gradient of a term: a sum over batch indices.
  const char* match_term_gradient();
};

}  // namespace millrace
