// Finds alternatives for later stages to measure: stacked contractions (paper section A.5.2), epilogues, and joins that
// contractions do not need.
// Tests: tests/fusion/variants_test.cpp.
#pragma once

#include <vector>

#include "fusion/fused_graph.h"
#include "fusion/group.h"

namespace millrace {

// Contractions that share an operand (Q, K and V of one input; their weight gradients), and contractions whose results
// are summed (their input gradients): every subset of two or more, for sets of up to four.
std::vector<Stacking> find_stackings(const Neighbourhood& near);

// Biases, activations, residuals and their gradients right after a contraction, and bias gradients of its operand.
std::vector<Epilogue> find_epilogues(const Neighbourhood& near);

// Joins whose inputs contractions can read as stacked tensors.
std::vector<JoinedStack> find_joined_stacks(const Neighbourhood& near, const std::vector<FusedOperator>& groups);

}  // namespace millrace
