// Products that add themselves to a tensor that is there by then (a BLAS's beta = 1), and the sums that they make so,
// one adding to what the one before it made. Test: tests/candidates/additions_test.cpp
#pragma once

#include <optional>
#include <vector>

#include "fusion/fused_graph.h"

namespace millrace {

struct AddingProduct {
  OperatorId contraction;
  OperatorId addition;  // of its result and `added`
  TensorId added;
};

// From the epilogues that add a whole tensor. One list a sum, in the order in which it is made; what something else
// reads too is a sum of its own. Of two products whose results are added, the later one adds.
std::vector<std::vector<AddingProduct>> find_accumulations(const Graph& graph, const std::vector<Epilogue>& epilogues);

// What the program's additions make of the results of several contractions.
struct ProductSum {
  TensorId sum;
  TensorId added;  // that they are added to, where it is valid
  std::vector<OperatorId> additions;
};

using ReadersOfTensors = std::vector<std::vector<OperatorId>>;  // one a tensor

// The sum of exactly these, if there is one.
std::optional<ProductSum> sum_of(const Graph& graph, const ReadersOfTensors& readers,
                                 const std::vector<OperatorId>& contractions);

// The sum of these and of one tensor more, which is no contraction's own: one of them is added to it, or their sum is.
std::optional<ProductSum> sum_with_another(const Graph& graph, const ReadersOfTensors& readers,
                                           const std::vector<OperatorId>& producers,
                                           const std::vector<OperatorId>& contractions);

}  // namespace millrace
