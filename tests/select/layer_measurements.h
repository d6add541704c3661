// Measurements of the shape and size of a BERT layer's training step, with modelled times: bytes by bandwidth, slower
// where layouts do not go together, and a little noise.
#pragma once

#include "measure/measurements.h"

namespace millrace {

// The same for the same seed on every machine.
Measurements layer_measurements(unsigned seed);

}  // namespace millrace
