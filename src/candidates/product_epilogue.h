// What a library does at the end of a product: adds a tensor or biases, takes a function or the gradient of one, or
// sums an operand for the gradient of a bias.
#pragma once

#include <string>
#include <vector>

#include "candidates/candidates.h"

namespace millrace {

// Gives a product the biases that `additions` add to its results, one to each; its results are then theirs. False, and
// a reason, where that is not what they do.
bool take_biases(const Graph& graph, const std::vector<OperatorId>& additions, Product& product, std::string& reason);

// Lets a product write `sum`, which is its result and `added`.
bool take_addition(const Graph& graph, TensorId added, TensorId sum, Product& product, std::string& reason);

// Lets a product, which has its bias by then, write what `function` makes of its one result; and what it is made of,
// where that is among `needed`.
bool take_activation(const Graph& graph, OperatorId function, const std::vector<TensorId>& needed, Product& product,
                     std::string& reason);

// Lets a product, whose result is what a function's output has as gradient, write that of its input.
bool take_activation_gradient(const Graph& graph, OperatorId gradient, Product& product, std::string& reason);

// Gives a product the gradients that `sums` make of one of its operands, one of each tensor of it.
bool take_bias_gradients(const Graph& graph, const std::vector<OperatorId>& sums, Product& product,
                         std::string& reason);

}  // namespace millrace
