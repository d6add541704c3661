// Builds the ScoreExpression of an attention from the operators of a graph. Test: tests/ir/score_expression_test.cpp
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/attention_roles.h"
#include "ir/score_expression.h"

namespace millrace {

// Whether an attention can apply such an operator to a score.
bool applies_to_scores(OperatorKind kind);

class ScoreBuilder {
 public:
  // `kept`: tensors that are read as terms, because others need them in memory too.
  ScoreBuilder(const Graph& graph, const std::vector<OperatorId>& producers, size_t batch_indices,
               const std::set<TensorId>& kept)
      : graph_(graph), producers_(producers), batch_indices_(batch_indices), kept_(kept) {}

  // Declares the tensor that holds the score or the gradient.
  void give(TensorId tensor, Roles axes, ScoreNode::Kind kind) { given_[tensor] = {std::move(axes), kind}; }
  // Declares a tensor that is not in memory, so the attention must apply the operator that computes it.
  void require(TensorId tensor) { required_.insert(tensor); }
  // Declares a tensor that has the values of another.
  void add_copy(TensorId copy, TensorId original) { copies_[copy] = original; }

  // The node of what an operator reads; `indices`: the roles of that operator's indices. Nothing if an attention cannot
  // compute or read it.
  std::optional<size_t> add(const Access& access, const Roles& indices);

  ScoreExpression& expression() { return made_; }
  // The operators that it applies, and those whose results are positions.
  const std::set<OperatorId>& applied() const { return applied_; }
  const std::set<OperatorId>& positions() const { return positions_; }

 private:
  using Made = std::optional<size_t>;

  Made make(TensorId tensor, const Roles& axes);
  Made apply(OperatorId producer, const Roles& axes);
  Made add_position(OperatorId producer, Role role);
  Made add_term(TensorId tensor, const Roles& axes);
  size_t add_node(ScoreNode node);
  bool saves_words(OperatorId producer) const;
  int64_t fewest_words(OperatorId producer, int depth) const;

  const Graph& graph_;
  const std::vector<OperatorId>& producers_;
  size_t batch_indices_;
  const std::set<TensorId>& kept_;
  std::map<TensorId, std::pair<Roles, ScoreNode::Kind>> given_;
  std::set<TensorId> required_;
  std::map<TensorId, TensorId> copies_;
  std::map<std::pair<TensorId, Roles>, size_t> nodes_;
  ScoreExpression made_;
  std::set<OperatorId> applied_;
  std::set<OperatorId> positions_;
};

}  // namespace millrace
