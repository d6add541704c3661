// What a selection must satisfy with respect to its measurements: it carries out every operator once, its layouts
// agree, it has exactly the conversions that they need, and its cost adds up. Test: tests/select/verify_test.cpp
#pragma once

#include "measure/measurements.h"
#include "millrace/result.h"
#include "select/selection.h"

namespace millrace {

Result<Done> verify(const Measurements& measurements, const Selection& selection);

}  // namespace millrace
