// Random slices, reshapes, transposes, joins and repetitions: what moves elements without computing.
// Tests: tests/random/random_programs_test.cpp.
#pragma once

#include "random/body.h"

namespace millrace::random_programs {

// The value indexed, reshaped, permuted, repeated, padded or joined with itself or with another. It has at least one
// axis.
Value moved(Body& body, const Value& value);

}  // namespace millrace::random_programs
