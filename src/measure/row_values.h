// The RowExpression of an attention's operand, evaluated by the reference for one head, with bounds on the errors of
// float32. Test: tests/measure/attention_reference_data_test.cpp
#pragma once

#include <functional>
#include <vector>

#include "candidates/candidates.h"
#include "measure/reference_data.h"
#include "reference/bounded.h"

namespace millrace {

using RowNumber = Bounded<24>;

// Elements of a term at the rows and columns of a piece, of one head.
struct RowElements {
  const double* first = nullptr;
  int64_t row = 0;   // from row to row
  int64_t step = 0;  // from column to column
};

struct RowInputs {
  std::function<RowElements(const AttentionTensor& term, const std::vector<RowPosition>& positions)> elements;
  std::function<RowNumber(int64_t row, int64_t column)> gradient;
};

// [row][column]. NaN if it is too large for the reference.
std::vector<RowNumber> row_values(const Graph& graph, const RowExpression& expression, int64_t rows,
                                  const RowInputs& inputs, const ReferenceData& reference_data);

}  // namespace millrace
