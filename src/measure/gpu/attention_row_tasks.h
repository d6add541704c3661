// Tasks of the oracle for rows of an attention's operands that are computed from tensors in memory, or stored after a
// computation. Test: tests/measure/gpu_reference_test.cpp
#pragma once

#include <functional>
#include <vector>

#include "measure/gpu/attention_tasks.h"

namespace millrace {

class AttentionRowTasks : public AttentionTasks {
 public:
  using AttentionTasks::AttentionTasks;

 protected:
  // The root mean square of q or k: as drawn, or of the rows that are computed from what was drawn.
  Result<double> size_of_elements(Attention::Operand operand, const DrawRules& rules) const;
  // The index of the rows of q, k, d_q or d_k.
  size_t row_index_of(Attention::Operand operand) const {
    return operand == Attention::q || operand == Attention::d_q ? query_ : key_;
  }
  // Columns first, first + step, … of an operand in memory, along the inner index.
  Placed columns_at(const Placed& operand, int64_t first, int64_t step) const;
  Result<Done> make_row_temporaries();
  // Sets an operand to q or k at this point: as drawn; or computed, with the errors of kernels that compute its rows
  // and may round them to the operand's type. Then `to` is a temporary.
  Result<Done> find_rows(Attention::Operand operand, Placed& to);
  // Adds to the errors of the scores those of q and k: for the product of a query and any key, the error of one times
  // the size of the other, and both errors. `largest_k`: by column.
  Result<Done> add_operand_errors(const Placed& q, const Placed& largest_k, double scale, const Placed& errors) const;
  // Computes the nodes of a piece, and uses the last one while the inner index counts the piece's columns. `gradient`:
  // that of the operand, if the piece is stored.
  using Use = std::function<Result<Done>(const Placed& last)>;
  Result<Done> with_piece(Attention::Operand operand, const RowPiece& piece, const Placed* gradient, const Use& use);

 private:
  bool computes(Attention::Operand operand) const { return !attention_.rows[operand].empty(); }
  Result<Done> make_nodes(size_t row);
  Result<Done> find_columns(Attention::Operand operand, const RowPiece& piece, const Placed& to);
  Result<Placed> node_values(Attention::Operand operand, const RowNode& node, const Placed* gradient,
                             const std::vector<Placed>& nodes) const;
  Placed elements_at(const AttentionTensor& term, const std::vector<RowPosition>& positions) const;

  // By the index of their rows: for the operators of a piece.
  std::vector<Placed> query_nodes_;
  std::vector<Placed> key_nodes_;
  Placed q_error_, k_error_, largest_k_error_, score_error_;
};

}  // namespace millrace
