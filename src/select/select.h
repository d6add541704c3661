// Measurements → Selection: one alternative of every choice point, one candidate of every partition, and the
// conversions between them. The measurements must pass verify() of measure/. Test: tests/select/select_test.cpp
#pragma once

#include "measure/measurements.h"
#include "millrace/result.h"
#include "select/selection.h"

namespace millrace {

// The search ends when its time is over. It goes on only until it has found a first selection, however long that takes.
struct SelectLimits {
  double seconds = 10;
};

inline constexpr SelectLimits kRoughLimits = {0.5};

// The optimum, if the search ends in time; otherwise the best that it found, with a proven lower bound. Fails with
// no_configuration if nothing fits together; the error names the partition or the tensors.
Result<Selection> select(const Measurements& measurements, SelectMethod method, const SelectLimits& limits = {});

// Quickly makes a selection near the best one, for decisions that are made again and again. It has a proven lower bound
// too.
Result<Selection> select_roughly(const Measurements& measurements, const SelectLimits& limits = kRoughLimits);

}  // namespace millrace
