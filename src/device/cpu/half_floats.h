// Converts float32 to and from the two half-sized types, many at once, on several threads. The results equal those of
// decode and encode of base/stored_type.h bit for bit, except for NaN payloads. Test: tests/device/half_floats_test.cpp
#pragma once

#include <cstdint>

#include "base/stored_type.h"

namespace millrace {

// `type` is f16 or bf16.
void widen(StoredType type, const void* from, float* to, int64_t count, int threads);

// Rounds to nearest, ties to even.
void narrow(StoredType type, const float* from, void* to, int64_t count, int threads);

}  // namespace millrace
