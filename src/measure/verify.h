// What measurements must satisfy; measurements.h says what it means.
#pragma once

#include "measure/measurements.h"
#include "millrace/result.h"

namespace millrace {

Result<Done> verify(const Measurements& measurements);

}  // namespace millrace
