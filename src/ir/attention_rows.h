// Operators that an attention can apply to the rows of its operands, such as rotary embeddings: then the operands
// themselves are never in memory. Test: tests/ir/row_expression_test.cpp
#pragma once

#include <optional>
#include <vector>

#include "ir/attention.h"
#include "ir/row_expression.h"

namespace millrace {

// What an attention reads or writes in place of one operand.
struct AttentionRows {
  AttentionTensor tensor;    // in memory; of several tensors that the rows are computed from, the first whole one
  RowExpression expression;  // empty: the operand is in memory
};

struct AbsorbedRows {
  AttentionRows q, k;
  AttentionRows d_q, d_k;            // their expressions compute what is stored from the gradients' rows
  std::vector<OperatorId> forward;   // that it absorbs, in the graph's order
  std::vector<OperatorId> backward;  // the same
};

// Nothing if there is nothing to absorb. `leaves`: as for find_attentions.
std::optional<AbsorbedRows> absorbed_rows(const Graph& graph, const std::vector<bool>& leaves,
                                          const AttentionPattern& attention);

}  // namespace millrace
