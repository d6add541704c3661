// The best selection of a problem by eliminating its tensors one after another, in tables with one row for each useful
// combination of what is asked of the tensors that are still open.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "select/dual.h"
#include "select/problem.h"

namespace millrace {

struct EliminationLimits {
  double cost = kInfinity;   // selections above are not looked for
  size_t rows = 20'000'000;  // of all tables together
  size_t beam = 0;           // rows that a table keeps, the most promising ones; 0: all
};

struct Elimination {
  enum class End {
    solved,   // ways and alternatives are the best within the limits
    nothing,  // there is none within the cost
    blown,    // more rows than allowed
  };
  End end = End::nothing;
  bool complete = true;           // no row was dropped for its cost or for the beam
  std::vector<int> alternatives;  // one a choice point
  std::vector<int> candidates;    // one a partition, of the measurements; -1: not in the cover
  std::vector<size_t> stuck;      // nothing: the tensors that could not be brought together where it became clear
};

// In two steps: the parts of each choice point are joined to one table a choice point; these are a smaller problem,
// with a higher bound of its own, whose tables are then joined to one.
Elimination eliminate(const Problem& problem, const DualBound& dual, const EliminationLimits& limits);

}  // namespace millrace
