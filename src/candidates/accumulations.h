// Products that accumulate into an existing tensor (BLAS's beta = 1), and chains of them that make a sum, each adding
// to the result of the previous one. Test: tests/candidates/additions_test.cpp
#pragma once

#include <optional>
#include <vector>

#include "fusion/fused_graph.h"

namespace millrace {

struct AddingProduct {
  OperatorId contraction;
  OperatorId addition;  // adds `added` to its result
  TensorId added;
};

// Finds them among the epilogues that add a whole tensor. Returns one list per sum, in order of execution. A partial
// sum that something else reads too ends its list. If the results of two products are added to each other, the later
// product does it.
std::vector<std::vector<AddingProduct>> find_accumulations(const Graph& graph, const std::vector<Epilogue>& epilogues);

// The sum of the results of several contractions, by additions of the program.
struct ProductSum {
  TensorId sum;
  TensorId added;  // if valid: a further tensor in the sum
  std::vector<OperatorId> additions;
};

using ReadersOfTensors = std::vector<std::vector<OperatorId>>;  // one per tensor

// The sum of exactly these, if the program computes it.
std::optional<ProductSum> sum_of(const Graph& graph, const ReadersOfTensors& readers,
                                 const std::vector<OperatorId>& contractions);

// The sum of these and one more tensor, which is not the result of a contraction that only the sum reads. Either one of
// them is added to that tensor, or their sum is.
std::optional<ProductSum> sum_with_another(const Graph& graph, const ReadersOfTensors& readers,
                                           const std::vector<OperatorId>& producers,
                                           const std::vector<OperatorId>& contractions);

}  // namespace millrace
