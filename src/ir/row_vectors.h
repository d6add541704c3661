// The columns of a row expression that a GPU's thread computes at a time, so that it reads and writes neighbours
// together. Test: tests/ir/row_expression_test.cpp
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/row_expression.h"

namespace millrace {

// Neighbouring columns, from `first` on, which come from these pieces in turn.
struct RowRun {
  int64_t first = 0;
  std::vector<size_t> pieces;
};

// Vector n has the columns with the numbers width · n to width · n + width - 1 of some pieces. Pieces that read the
// same elements share vectors, such as the halves of a rotary embedding.
struct RowVectors {
  int64_t width = 1;
  int64_t count = 0;
  std::vector<RowRun> runs;
};

// Together all columns. Nothing if the runs of some vector begin or end at an odd column: halves are stored in pairs.
std::optional<std::vector<RowVectors>> row_vectors(const RowExpression& expression);

}  // namespace millrace
