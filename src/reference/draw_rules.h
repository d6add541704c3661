// How optimize, bench, run, trials and tests draw inputs. Numbers resemble those in training: activations and incoming
// gradients of size one (their root mean square), weights scaled by their fan-in, weights of a norm near one, biases
// small. They are in the domain of the operators: a logarithm's argument is positive, and no exponential overflows.
// Test: tests/reference/draw_rules_test.cpp
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace millrace {

struct DrawRule {
  DType dtype = DType::float32;
  int64_t positions = 0;  // positive: an integer from 0 to positions - 1
  double middle = 0;
  double reach = 0;  // a number is uniform from middle - reach to middle + reach

  bool operator==(const DrawRule&) const = default;
};

using DrawRules = std::vector<DrawRule>;  // one per tensor of the graph

// The rules of all tensors. Trials also draw what other kernels compute, in the range that it has for drawn arguments.
DrawRules draw_rules(const Graph& graph);

// A drawn element, from a number that is uniform in [-1, 1); not rounded to the type. The value of a boolean is its
// sign.
double drawn_value(const DrawRule& rule, double uniform);

// The root mean square of the numbers.
double size_of(const DrawRule& rule);

// The rule of numbers that are uniform in a range.
DrawRule drawn_between(DType dtype, double low, double high);

}  // namespace millrace
