// Alternatives to what fusion chose, for later stages to measure: stacked contractions (paper section A.5.2) and
// epilogues. None is taken here.
#pragma once

#include <vector>

#include "fusion/fused_graph.h"
#include "fusion/group.h"

namespace millrace {

// Contractions that share an operand (Q, K and V of one input; their weight gradients), and those whose results are
// summed (their input gradients): every set of two and more, up to four at a time.
std::vector<Stacking> find_stackings(const Neighbourhood& near);

// Biases, activations, residuals and their gradients right behind a contraction, and bias gradients of its operand.
std::vector<Epilogue> find_epilogues(const Neighbourhood& near);

}  // namespace millrace
