// Measurements → Selection: one alternative of every choice point, one way of every partition, and the conversions
// between them. Assumes measurements that verify() of measure/ accepts. Tested by tests/select/select_test.cpp.
#pragma once

#include "measure/measurements.h"
#include "millrace/result.h"
#include "select/selection.h"

namespace millrace {

// An error of kind no_configuration when nothing fits together: it names the partition or the tensors.
Result<Selection> select(const Measurements& measurements, SelectMethod method);

// One that is near the best, however many ways are as good as each other.
Result<Selection> select_roughly(const Measurements& measurements);

}  // namespace millrace
