// The values that the tensors of a graph have for drawn inputs, estimated from a few samples of each. It is fast at any
// size, since a sum over an index is estimated from the mean and the deviation. Test:
// tests/reference/draw_rules_test.cpp
#pragma once

#include <vector>

#include "ir/graph.h"
#include "reference/draw_rules.h"

namespace millrace {

// Some elements of a tensor, at random points. Elements with the same number, of any two tensors, are at the same
// point.
using Samples = std::vector<double>;

// One per tensor. The rules of computed tensors are not used.
std::vector<Samples> sample_values(const Graph& graph, const DrawRules& rules);

// Statistics of the finite samples.
struct SampleStatistics {
  size_t count = 0;
  double least = 0;
  double most = 0;
  double mean = 0;
  double deviation = 0;
};

SampleStatistics statistics_of(const Samples& samples);

// How many points an operator reduces to one; in floating point, because it only scales samples.
double reduced_points(const Graph& graph, const Operator& op);

}  // namespace millrace
