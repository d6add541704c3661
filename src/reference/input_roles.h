// The role of each argument, as far as the graph shows it. It decides the size of drawn numbers.
// Test: tests/reference/draw_rules_test.cpp
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace millrace {

struct InputRole {
  enum class Kind {
    activation,  // anything else, also incoming gradients
    bias,        // added, the same for many points
    factor,      // multiplied, the same for many points: the weight of a norm
    weight,      // contracted, the same for all of a batch
  };
  Kind kind = Kind::activation;
  int64_t fan_in = 1;  // of a weight: the products in a sum
};

// One per tensor, also for those that only copy or join arguments. A contraction's operand is a weight if it shares no
// index with both the other operand and the output. If both operands are arguments, the one with the dimension that
// most results have (the batch) is the activation.
std::vector<InputRole> input_roles(const Graph& graph);

}  // namespace millrace
