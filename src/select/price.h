// What a choice of alternatives and ways costs: the conversions that it needs follow from it.
#pragma once

#include <optional>
#include <vector>

#include "measure/measurements.h"
#include "select/selection.h"

namespace millrace {

// The alternatives (one a site) and ways (one a part; -1: not in the cover) as a selection, with the conversions that
// cost least; none when a layout that is needed cannot be made.
std::optional<Selection> priced(const Measurements& measurements, const std::vector<int>& alternatives,
                                const std::vector<int>& ways);

// What a step would cost if every part could take its fastest way, the best alternative of every site.
double unconstrained_bound(const Measurements& measurements);

}  // namespace millrace
