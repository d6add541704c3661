// Epilogues of a product: it adds a tensor or biases, applies an activation or its gradient, or sums an operand for the
// gradient of a bias. Each function changes `product` to include the operators. If they do not fit, it returns the
// reason, and `product` must not be used any more. `able`: what the library computes. Test:
// tests/candidates/epilogues_test.cpp
#pragma once

#include <optional>
#include <vector>

#include "base/or_rejected.h"
#include "base/target.h"
#include "candidates/candidates.h"

namespace millrace {

// Includes the biases that `additions` add to its results, one to each; it then writes the additions' results.
std::optional<Rejection> take_biases(const Graph& graph, const std::vector<OperatorId>& additions, Product& product);

// Makes a product write `sum`, its result plus `added`.
std::optional<Rejection> take_addition(const Graph& graph, TensorId added, TensorId sum, Product& product);

// Applies `function` to the only result of a product, which has its bias already. The function's input is written too,
// as the auxiliary matrix, if it is among `needed`.
std::optional<Rejection> take_activation(const Graph& graph, OperatorId function, const std::vector<TensorId>& needed,
                                         const GemmEpilogues& able, Product& product);

// Makes a product, whose result is the gradient of a function's output, write the gradient of the function's input.
std::optional<Rejection> take_activation_gradient(const Graph& graph, OperatorId gradient, const GemmEpilogues& able,
                                                  Product& product);

// Includes the gradients that `sums` compute from one of its operands, one from each of the operand's tensors.
std::optional<Rejection> take_bias_gradients(const Graph& graph, const std::vector<OperatorId>& sums,
                                             const GemmEpilogues& able, Product& product);

}  // namespace millrace
