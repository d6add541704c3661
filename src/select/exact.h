// The optimum over all covers, ways and conversions, with choices made beforehand left as they are.
#pragma once

#include "measure/measurements.h"
#include "millrace/result.h"
#include "select/problem.h"
#include "select/selection.h"

namespace millrace {

Result<Selection> select_exact(const Measurements& measurements, const Restriction& restriction = {});

}  // namespace millrace
