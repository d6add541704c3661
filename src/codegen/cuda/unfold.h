// The kernel that copies an operand of a product into a dense matrix, at the beginning of the launch's scratch.
// Test: tests/measure/unfolded_trials_test.cpp
#pragma once

#include "codegen/kernel_text.h"

namespace millrace {

// The source and grids of a launch that unfolds a or b. The kernel gets the launch's tensors and numbers.
KernelText generate_unfold(const Launch& launch);

}  // namespace millrace
