// What a library does at the end of a product: adds a tensor or biases, takes the positive part, or sums an operand for
// the gradient of a bias.
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

// Lets a product, which has its bias by then, write what `relu` makes of its one result.
bool take_relu(const Graph& graph, OperatorId relu, Product& product, std::string& reason);

// Gives a product the gradients that `sums` make of one of its operands, one of each tensor of it.
bool take_bias_gradients(const Graph& graph, const std::vector<OperatorId>& sums, Product& product,
                         std::string& reason);

}  // namespace millrace
