// The paper's method (section 6.1): a shortest path through the layouts of the forward pass's main chain of tensors.
// Every other partition then takes, in order, the candidate that costs least given the choices already made. Test:
// tests/select/select_test.cpp
#pragma once

#include "measure/measurements.h"
#include "millrace/result.h"
#include "select/select.h"

namespace millrace {

Result<Selection> select_sssp(const Measurements& measurements, const SelectLimits& limits);

}  // namespace millrace
