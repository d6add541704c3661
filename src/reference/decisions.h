// Where a program decides: a comparison, the side of a ReLU, which element is the largest. There values or gradients
// jump, and one that two roundings decide differently is as far off as it is large, which says nothing of either. Test:
// tests/reference/decisions_test.cpp
#pragma once

#include <vector>

#include "ir/graph.h"
#include "millrace/result.h"
#include "reference/interpreter.h"

namespace millrace {

class Decisions {
 public:
  explicit Decisions(const Graph& graph);

  // Whether all fall out as the exact values say by whoever errs by less than twice what `rounded` does. What is the
  // same in both, an element that is the largest or zeros behind a dropout, is nobody's decision.
  Result<bool> are_clear(const Values<double>& exact, const Values<double>& rounded) const;

 private:
  Result<Values<double>> differences_in(const Values<double>& values) const;

  Graph differences_;              // one operator a decision: how far its sides are apart
  std::vector<TensorId> sources_;  // of its first tensors, in the graph that decides
};

}  // namespace millrace
