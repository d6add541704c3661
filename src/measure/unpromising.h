// Partitions whose trials would waste a budget: only clearly slower alternatives of a choice point use them. The
// unfused kernels of an attention with 4,096 keys take seconds to check, and cannot be faster than a fused one.
// Test: tests/measure/partition_classes_test.cpp
#pragma once

#include <vector>

#include "candidates/candidates.h"
#include "measure/partition_classes.h"

namespace millrace {

// How much longer than a measured alternative another one is estimated to take before it is deferred. Estimates are
// optimistic; the rest is for layouts that only the other alternative allows.
inline constexpr double kClearlySlower = 1.5;

// The classes that only such alternatives use, at their estimates where they are not measured, without classes of which
// a selection wants a trial.
std::vector<size_t> unpromising_classes(const Candidates& candidates, const PartitionClasses& classes);

}  // namespace millrace
