// What a match of an attention has found so far, and functions to search around it. forward_match.h and
// backward_match.h find the operators of the two passes; attention.cpp builds the score expression. Tests:
// tests/ir/attention_test.cpp.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "ir/attention.h"
#include "ir/attention_roles.h"

namespace millrace {

template <class List, class Element>
bool is_in(const List& list, const Element& element) {
  return std::find(list.begin(), list.end(), element) != list.end();
}

// The graph around the attention of one softmax.
struct AttentionSurroundings {
  const Graph& graph;
  const std::vector<bool>& leaves;
  const std::vector<OperatorId>& producers;
  const std::vector<std::vector<OperatorId>>& readers;
};

class AttentionMatch {
 public:
  AttentionMatch(const AttentionSurroundings& around, OperatorId softmax)
      : graph_(around.graph), leaves_(around.leaves), producers_(around.producers), readers_(around.readers) {
    made_.softmax = softmax;
  }

  const AttentionPattern& pattern() const { return made_; }

 protected:
  // An operator between the scores and the softmax, and which of its inputs is computed from the scores.
  struct PathStep {
    OperatorId op;
    size_t input;
  };

  bool is_own(OperatorId id) const { return is_in(made_.forward, id) || is_in(made_.backward, id); }
  const Operator& op(OperatorId id) const { return graph_.operators[id.at()]; }
  const Access& input_of(const PathStep& step) const { return op(step.op).inputs[step.input]; }
  TensorId result_of(OperatorId id) const { return op(id).outputs[0].tensor; }
  // Whether row_statistics added the operator. A program's own log_sum_exp is no statistic.
  bool is_statistic(OperatorId id) const;
  std::vector<OperatorId> readers_of(TensorId tensor, Pass pass) const;
  // The one operator of a kind that reads a tensor in a pass; invalid if there is none, or several.
  OperatorId only(OperatorKind kind, TensorId tensor, Pass pass) const;
  // Records the roles of a tensor's axes; false if they are not exactly `wanted`.
  bool note(AttentionTensor& into, TensorId tensor, const Roles& axes, const Roles& wanted);
  // Returns `others` and the inner indices.
  Roles with_inner(Roles others) const;
  // Returns `others` and the batch indices.
  Roles with_batch(Roles others) const;
  // Returns `others` and the batch indices that keys have too.
  Roles with_batch_of_keys(Roles others) const;
  // The indices that the gradients of keys and values are summed over.
  Roles queries_and_groups() const;
  // The roles of an operator's indices, from the roles of the tensors that it accesses.
  std::optional<Roles> indices_of(OperatorId id);
  // Records the outputs of a map or normalization over the indices of the scores; nothing if its indices differ.
  std::optional<Roles> add_to_chain(OperatorId id);
  // The weights as the output contraction reads them.
  TensorId dropped() const { return result_of(dropout_.valid() ? dropout_ : made_.softmax); }
  const char* read_by_others(const std::vector<OperatorId>& own, const std::set<Pass>& passes) const;

  const Graph& graph_;
  const std::vector<bool>& leaves_;
  const std::vector<OperatorId>& producers_;
  const std::vector<std::vector<OperatorId>>& readers_;
  OperatorId scores_;
  std::vector<PathStep> path_;  // from the scores to the softmax
  OperatorId dropout_;          // invalid if there is none
  OperatorId output_;
  Roles groups_;                     // batch indices that count heads which share their keys
  std::map<TensorId, Roles> roles_;  // of the axes of each matched tensor
  std::set<TensorId> inside_;        // intermediate tensors: in memory only if operators run separately
  AttentionPattern made_;
};

}  // namespace millrace
