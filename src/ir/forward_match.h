// Matches the forward pass of an attention around its softmax. Tests: tests/ir/attention_test.cpp.
#pragma once

#include <optional>
#include <vector>

#include "ir/attention_match.h"

namespace millrace {

class ForwardMatch : public AttentionMatch {
 public:
  using AttentionMatch::AttentionMatch;

  // Whether the softmax reads a contraction and a contraction reads it: only then is a reason for rejection useful.
  bool is_close() { return find_chain(); }

 protected:
  // Why this is not the forward pass of an attention; nullptr if it is.
  const char* match_forward();

 private:
  // The contraction that this tensor is made of by elementwise operators, which are added to the path.
  OperatorId find_scores(TensorId tensor);
  static bool runs_along_all(const Operator& own, const Access& access);
  // --- Forward ---
  bool find_chain();
  const char* check_accesses();
  // The axis of a tensor that runs along an index.
  static std::optional<int> axis_along(const Access& access, int index);
  // The axis of the scores along which an index of a step of the path runs. The softmax counts as the step after the
  // last.
  std::optional<int> axis_of_scores(size_t step, int index) const;
  // The axis of the scores along which the softmax runs.
  std::optional<int> key_axis() const;
  // The axis of the scores whose queries a causal mask compares with the keys.
  std::optional<int> causal_query_axis() const;
  // Of several indices that only the queries have, one counts the rows of the scores: the one that a causal mask
  // compares or, without a mask, the longest. The others are groups of heads that share their keys.
  int query_index(const std::vector<int>& only_queries) const;
  void add_batch(Role& role, DimId dim);
  // The indices that the scores are contracted over, in the order of the keys' axes.
  const char* match_inner(const Access& keys, Roles& indices);
  const char* match_scores();
  const char* match_chain();
  const char* match_output();
  // Runs before the gradients are matched: if others read what the attention computes, its gradients have more terms.
  const char* check_forward() { return read_by_others(made_.forward, {Pass::forward}); }
};

}  // namespace millrace
