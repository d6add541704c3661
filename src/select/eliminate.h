// The limits and the outcome of an elimination (eliminator.h), which finds the best selection of a problem.
// Test: tests/select/select_test.cpp
#pragma once

#include <vector>

#include "select/dual.h"
#include "select/problem.h"

namespace millrace {

inline constexpr size_t kAllRows = static_cast<size_t>(-1);

struct EliminationLimits {
  double cost = kInfinity;          // costlier selections are not searched for
  size_t rows = 10'000'000;         // of all tables together
  size_t beam = kAllRows;           // rows that a table keeps, the most promising first; limits alternatives too
  double deadline = kInfinity;      // on the clock of base/clock.h: the search ends
  double rise = 1e-4;               // bounds are improved while they rise this fast: see DualBound::improve
  double bounds_until = kInfinity;  // on the same clock: bounds are not improved any further
};

struct Elimination {
  enum class End {
    solved,   // the candidates and alternatives are the best within the limits
    nothing,  // no selection is within the limits
    cut,      // too many rows, or too late
  };
  End end = End::nothing;
  bool dropped_by_beam = false;   // rows or alternatives that might have led to a better selection
  double lower_bound = 0;         // no selection costs less than this, or than the cost limit
  size_t rows = 0;                // made, in all tables
  std::vector<int> alternatives;  // one per choice point
  std::vector<int> candidates;    // one per partition, of the measurements; -1: not selected
  std::vector<size_t> stuck;  // for `nothing`: the tensors at which the search found that layouts cannot be reconciled
};

}  // namespace millrace
