// Which ranges of the arguments keep every operator in its domain: logarithms, roots, powers and divisors get positive
// arguments, and exponentials do not overflow. Test: tests/reference/draw_rules_test.cpp
#pragma once

#include <vector>

#include "ir/graph.h"
#include "reference/draw_rules.h"
#include "reference/value_samples.h"

namespace millrace {

// The numbers that a tensor should have.
struct Demand {
  double low = -1e300;
  double high = 1e300;
};

// One per tensor; of computed tensors none. `samples`: of all tensors, for what is drawn now.
std::vector<Demand> domain_demands(const Graph& graph, const std::vector<Samples>& samples);

}  // namespace millrace
