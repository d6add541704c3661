// Adds what fused attention saves for backward instead of the softmax: the logarithm of each row's sum of exponentials.
// Tests: tests/fusion/row_statistics_test.cpp; why: docs/decisions/0008-attention.md.
#pragma once

#include "fusion/recompute.h"

namespace millrace {

// Adds a forward operator, in float32, for every attention that ir/attention.h finds, after all other forward
// operators. It is in no group: only fused attention computes it, and no operator reads it. Nothing else changes except
// the ids of backward's operators.
Recomputed add_row_statistics(Recomputed made);

}  // namespace millrace
