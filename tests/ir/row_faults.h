// Faults in row expressions, each of which must make an attention's results wrong.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "ir/row_expression.h"

namespace millrace {

using RowFault = std::function<void(RowExpression&)>;

// Faults of the first program of row_family.h. A fault may leave an expression as it is.
inline std::vector<RowFault> row_faults() {
  const auto of_node = [](const auto& is_one, const auto& change) {
    return RowFault([=](RowExpression& rows) {
      for (RowPiece& piece : rows.pieces) {
        for (RowNode& node : piece.nodes) {
          if (is_one(node)) change(node);
        }
      }
    });
  };
  const auto is = [](OperatorKind kind) {
    return [=](const RowNode& node) { return node.kind == RowNode::Kind::apply && node.op == kind; };
  };
  return {of_node(is(OperatorKind::negate), [](RowNode& node) { node.op = OperatorKind::copy; }),
          of_node(is(OperatorKind::add), [](RowNode& node) { node.op = OperatorKind::subtract; }),
          [](RowExpression& rows) { std::swap(rows.pieces.front().nodes, rows.pieces.back().nodes); },
          of_node([](const RowNode& node) { return node.kind == RowNode::Kind::element; },
                  [](RowNode& node) { node.positions.back().step = 0; }),
          [](RowExpression& rows) { rows.terms.back().axes.query = rows.terms.back().axes.key = -1; }};
}

}  // namespace millrace
