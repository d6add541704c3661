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

// The same for a term whose values are given, row-major; `head`: the offset of the head.
RowElements row_elements(const Graph& graph, const AttentionTensor& term, const std::vector<RowPosition>& positions,
                         const std::vector<double>& values, int64_t head);

// [row][column]. NaN if it is too large for the reference.
std::vector<RowNumber> row_values(const Graph& graph, const RowExpression& expression, int64_t rows,
                                  const RowInputs& inputs, const ReferenceData& reference_data);

// The root mean square of the rows of q or k in the first head. `reference_data`: the drawn inputs; those that the
// expression does not read may be missing.
double size_of_rows(const Graph& graph, const Partition& partition, Attention::Operand operand,
                    const ReferenceData& reference_data);

}  // namespace millrace
