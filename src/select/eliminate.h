// Finds the best selection of a problem by eliminating tensors one after another. A table has one row for each useful
// combination of what its partitions need from the tensors that are still open. Test: tests/select/select_test.cpp
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "select/dual.h"
#include "select/problem.h"

namespace millrace {

struct EliminationLimits {
  double cost = kInfinity;   // costlier selections are not searched for
  size_t rows = 20'000'000;  // of all tables together
  size_t beam = 0;           // rows that a table keeps, the most promising first; 0: all
};

struct Elimination {
  enum class End {
    solved,   // the candidates and alternatives are the best within the limits
    nothing,  // no selection is within the cost limit
    blown,    // more rows than allowed
  };
  End end = End::nothing;
  bool complete = true;           // no row was dropped because of its cost or the beam
  std::vector<int> alternatives;  // one per choice point
  std::vector<int> candidates;    // one per partition, of the measurements; -1: not selected
  std::vector<size_t> stuck;  // for `nothing`: the tensors at which the search found that layouts cannot be reconciled
};

// Works in two phases. The first joins the partitions of each choice point into one table. These tables form a smaller
// problem with a higher bound, and the second phase joins them into one.
Elimination eliminate(const Problem& problem, const DualBound& dual, const EliminationLimits& limits);

}  // namespace millrace
