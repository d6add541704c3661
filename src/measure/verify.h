// Checks measurements against the rules in measurements.h. Test: tests/measure/measurements_json_test.cpp
#pragma once

#include "measure/measurements.h"
#include "millrace/result.h"

namespace millrace {

Result<Done> verify(const Measurements& measurements);

}  // namespace millrace
