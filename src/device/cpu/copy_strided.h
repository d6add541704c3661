// Copies an operand of a product into a dense matrix. Test: tests/device/strided_copy_test.cpp
#pragma once

#include "device/strided_copy.h"

namespace millrace {

// `bytes`: of an element, 1, 2, 4 or 8. `to` has room for all elements and does not overlap `from`.
void copy_strided(const StridedCopy& copy, int64_t bytes, const void* from, void* to, int threads);

}  // namespace millrace
