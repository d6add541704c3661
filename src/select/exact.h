// The optimum over all alternatives, candidates and conversions, or the best selection that was found in time. Choices
// that were fixed beforehand stay fixed; the lower bound then holds for them only. Test: tests/select/select_test.cpp
#pragma once

#include "measure/measurements.h"
#include "millrace/result.h"
#include "select/problem.h"
#include "select/select.h"
#include "select/selection.h"

namespace millrace {

Result<Selection> select_exact(const Measurements& measurements, const SelectLimits& limits,
                               const Restriction& restriction = {});

}  // namespace millrace
