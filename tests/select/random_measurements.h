// Random measurements, small enough to try every selection of them.
#pragma once

#include "measure/measurements.h"

namespace millrace {

// The same for the same seed on every machine. Chains, diamonds, tensors of several readers, sites of up to three
// alternatives, tensors that one alternative alone has, pins, conversions that are not there; some fit nothing.
Measurements random_measurements(unsigned seed);

}  // namespace millrace
