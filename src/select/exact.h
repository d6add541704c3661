// The optimum over all alternatives, candidates and conversions. Choices that were fixed beforehand stay fixed. Test:
// tests/select/select_test.cpp
#pragma once

#include "measure/measurements.h"
#include "millrace/result.h"
#include "select/problem.h"
#include "select/select.h"
#include "select/selection.h"

namespace millrace {

Result<Selection> select_exact(const Measurements& measurements, const Restriction& restriction = {});

}  // namespace millrace
