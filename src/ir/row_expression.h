// How the rows of an attention's operand are computed from tensors in memory: rotary embeddings, scales, biases,
// anything that stays within a row and permutes columns. For a gradient: what is stored instead of its rows. Test:
// tests/ir/row_expression_test.cpp
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/score_expression.h"

namespace millrace {

// The position first + step · i, for the column number i of a piece.
struct RowPosition {
  int axis = 0;
  int64_t first = 0;
  int64_t step = 0;

  bool operator==(const RowPosition&) const = default;
};

// A number at each column of a piece.
struct RowNode {
  enum class Kind {
    number,    // a constant or scalar
    element,   // of a tensor in the same row
    gradient,  // of the operand's gradient, in the same row
    apply,     // an elementwise operator
  };

  Kind kind = Kind::number;
  TensorId number;                     // if invalid: `value`
  size_t term = 0;                     // of element: its position among the terms
  std::vector<RowPosition> positions;  // of element: one per axis along no row or batch; of gradient: the column
  OperatorKind op = OperatorKind::copy;
  double value = 0;            // Operator::value
  std::vector<size_t> inputs;  // of apply: earlier nodes

  bool operator==(const RowNode&) const = default;
};

// Columns first, first + step, …: all are the same function of their positions.
struct RowPiece {
  int64_t first = 0;
  int64_t step = 1;
  int64_t count = 0;
  std::vector<RowNode> nodes;  // each reads earlier ones; the last one is the value

  bool operator==(const RowPiece&) const = default;
};

struct RowExpression {
  std::vector<RowPiece> pieces;        // every column is in one of them; none: the row is in memory as it is
  std::vector<AttentionTensor> terms;  // tensors that it reads, with axes along some of batch and rows

  bool empty() const { return pieces.empty(); }
  bool operator==(const RowExpression&) const = default;
};

inline int64_t columns_of(const RowExpression& expression) {
  int64_t columns = 0;
  for (const RowPiece& piece : expression.pieces) columns += piece.count;
  return columns;
}

}  // namespace millrace
