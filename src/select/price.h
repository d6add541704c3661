// What a choice of alternatives and ways costs: the conversions that it needs follow from it.
#pragma once

#include <optional>
#include <vector>

#include "measure/measurements.h"
#include "select/selection.h"

namespace millrace {

// The alternatives (one a choice point) and ways (one a partition; -1: not in the cover) as a selection, with the
// conversions that cost least; none when a layout that is needed cannot be made.
std::optional<Selection> priced(const Measurements& measurements, const std::vector<int>& alternatives,
                                const std::vector<int>& candidates);

// What a step would cost if every partition could take its fastest way, the best alternative of every choice point.
double unconstrained_bound(const Measurements& measurements);

}  // namespace millrace
