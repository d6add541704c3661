// What an attention in one piece leaves for backward in place of the softmax: the logarithm of each row's sum of
// exponentials. Tests: tests/fusion/row_statistics_test.cpp; why: docs/decisions/0008-attention.md.
#pragma once

#include "fusion/recompute.h"

namespace millrace {

// Adds an operator of forward for every attention that ir/attention.h finds, behind all others of forward, in float32.
// It is in no group: nobody but an attention in one piece carries it out, and nothing in the graph reads it. All else
// stays as it is, but for the numbers of backward's operators.
Recomputed add_row_statistics(Recomputed made);

}  // namespace millrace
