// The cheapest path from every layout of a tensor to every other: a measured conversion, or a chain of them where the
// direct one was not measured or is slower. Test: tests/select/conversions_test.cpp
#pragma once

#include <vector>

#include "measure/measurements.h"

namespace millrace {

struct CheapestConversions {
  size_t layouts = 0;
  std::vector<double> seconds;  // by `from`, then `to`; 0 on the diagonal, infinite where there is no chain
  std::vector<int> before;      // the layout that the chain has before `to`; kNoLayout if there is no chain

  double between(int from, int to) const { return seconds[position(from, to)]; }
  // The layouts between `from` and `to`; none if the conversion is direct.
  std::vector<int> via(int from, int to) const;

 private:
  size_t position(int from, int to) const { return static_cast<size_t>(from) * layouts + static_cast<size_t>(to); }
};

// One per tensor.
std::vector<CheapestConversions> cheapest_conversions(const Measurements& measurements);

}  // namespace millrace
