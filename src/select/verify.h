// What a selection must satisfy with respect to its measurements: a whole cover, layouts that go together, just the
// conversions that they need, and a cost that adds up.
#pragma once

#include "measure/measurements.h"
#include "millrace/result.h"
#include "select/selection.h"

namespace millrace {

Result<Done> verify(const Measurements& measurements, const Selection& selection);

}  // namespace millrace
