// Measurements → Selection: one alternative of every choice point, one candidate of every partition, and the
// conversions between them. The measurements must pass verify() of measure/. Test: tests/select/select_test.cpp
#pragma once

#include "measure/measurements.h"
#include "millrace/result.h"
#include "select/selection.h"

namespace millrace {

// Fails with no_configuration if nothing fits together; the error names the partition or the tensors.
Result<Selection> select(const Measurements& measurements, SelectMethod method);

// A selection near the best one, in bounded time even if many candidates cost the same.
Result<Selection> select_roughly(const Measurements& measurements);

}  // namespace millrace
