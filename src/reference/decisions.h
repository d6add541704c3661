// Finds the decisions of a program: comparisons, the sign of a ReLU's input, which element is the largest. Values or
// gradients jump there. If two computations round differently and decide differently, their results differ by the
// size of the jump, which says nothing about either. Test: tests/reference/decisions_test.cpp
#pragma once

#include <vector>

#include "ir/graph.h"
#include "millrace/result.h"
#include "reference/interpreter.h"

namespace millrace {

class Decisions {
 public:
  explicit Decisions(const Graph& graph);

  // Whether every computation with at most twice the error of `rounded` decides as the exact values do. If both sides
  // are equal in both (the largest element itself, zeros after a dropout), rounding cannot change the decision.
  Result<bool> are_clear(const Values<double>& exact, const Values<double>& rounded) const;

 private:
  Result<Values<double>> differences_in(const Values<double>& values) const;

  Graph differences_;              // one operator per decision: the difference of its two sides
  std::vector<TensorId> sources_;  // for each of its first tensors, the tensor of the program's graph
};

}  // namespace millrace
