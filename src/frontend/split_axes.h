// Gives computed tensors the axes that their readers' reshapes and slices see. Tests: tests/frontend/views_test.cpp.
#pragma once

#include "ir/graph.h"

namespace millrace {

// Splits an axis of a computed tensor, and with it the indices of the operators that write and read it, where its
// readers see it as digits: (x @ w).reshape(B, T, H, D) becomes the product with axes H and D. Arguments and results
// keep the caller's shape. Does nothing to a program without reshapes, slices and joins.
void split_axes(Graph& graph);

// Where a result is a copy of a computed tensor with axes merged, lets the operator before the copy write the result.
void absorb_result_copies(Graph& graph);

}  // namespace millrace
