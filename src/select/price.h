// The cost of a choice of alternatives and candidates. The conversions that it needs follow from it. Test:
// tests/select/select_test.cpp
#pragma once

#include <optional>
#include <vector>

#include "measure/measurements.h"
#include "select/conversions.h"
#include "select/selection.h"

namespace millrace {

// Turns alternatives (one per choice point) and candidates (one per partition; -1: not selected) into a selection with
// these conversions. Empty if a layout that is needed cannot be made.
std::optional<Selection> priced(const Measurements& measurements, const std::vector<int>& alternatives,
                                const std::vector<int>& candidates, const std::vector<CheapestConversions>& cheapest);

// The cost of a step if every partition could use its fastest candidate, with the best alternative of every choice
// point.
double unconstrained_bound(const Measurements& measurements);

}  // namespace millrace
