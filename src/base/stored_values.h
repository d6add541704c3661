// Runs of values in memory, in their storage type: encode and decode of stored_type.h for many at once. Test:
// tests/base/stored_values_test.cpp
#pragma once

#include <cstddef>

#include "base/stored_type.h"

namespace millrace {

// Elements are `stride` elements of the type apart in memory.
void encode_run(const double* from, size_t count, StoredType type, char* to, size_t stride);
void decode_run(const char* from, size_t count, StoredType type, size_t stride, double* to);

}  // namespace millrace
