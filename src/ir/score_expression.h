// The computation between an attention's scores and its softmax, and its gradients, as an expression: bias, masks,
// soft-cap, anything elementwise. Kernels, expected values and error bounds are derived from it.
// Test: tests/ir/score_expression_test.cpp
#pragma once

#include <cstddef>
#include <optional>
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
  // If there are two inner indices: the axis of the first. The axis of the second, `column`, is the next one, so that
  // both together are the operand's columns.
  int outer_column = -1;

  // The axis of the operand's rows, which are queries or keys.
  int row() const { return query >= 0 ? query : key; }

  bool operator==(const AttentionAxes&) const = default;
};

// A tensor, and which of its axes run along which indices of the attention.
struct AttentionTensor {
  TensorId tensor;
  AttentionAxes axes;

  bool operator==(const AttentionTensor&) const = default;
};

// A number at each score.
struct ScoreNode {
  enum class Kind {
    score,     // the scaled product of a query and a key
    gradient,  // the gradient of the softmax's input
    number,    // a constant or scalar
    term,      // an element of a tensor
    query,     // the position of the query
    key,       // the position of the key
    apply,     // an elementwise operator
  };

  Kind kind = Kind::score;
  TensorId number;
  size_t term = 0;                       // its position among the terms
  OperatorKind op = OperatorKind::copy;  // of apply
  double value = 0;                      // Operator::value
  std::vector<size_t> inputs;            // of apply: earlier nodes

  bool operator==(const ScoreNode&) const = default;
};

struct ScoreExpression {
  std::vector<ScoreNode> nodes;        // each reads earlier ones; empty: the softmax takes the score itself
  std::vector<AttentionTensor> terms;  // tensors that it reads, with axes along some of the scores' indices
  size_t logit = 0;                    // the node that the softmax takes
  std::optional<size_t> d_score;       // backward: the gradient of the score
  std::optional<size_t> d_term;        // backward: the gradient of a term, before it is summed

  bool operator==(const ScoreExpression&) const = default;
};

// For each node, whether it depends on a node of this kind.
std::vector<bool> depends_on(const ScoreExpression& expression, ScoreNode::Kind kind);

// The expression in which each node `from` is replaced by the node `to[from]`, without nodes and terms that nothing
// needs; without any node if nothing is left.
ScoreExpression replaced(const ScoreExpression& expression, const std::vector<size_t>& to);

}  // namespace millrace
