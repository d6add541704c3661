// Lower bounds of the cost of selections: of all selections, and of those with a given candidate. Both are proven. So a
// candidate need not be measured if no selection with it can cost less than a known one. Test:
// tests/select/cost_bounds_test.cpp
#pragma once

#include <vector>

#include "measure/measurements.h"

namespace millrace {

struct CostBounds {
  double all = 0;                         // infinite if nothing fits together
  std::vector<std::vector<double>> with;  // by partition and candidate of the measurements; infinite: it fits nothing
};

// Improves the bounds for about this many seconds.
CostBounds cost_bounds(const Measurements& measurements, double seconds);

}  // namespace millrace
