// Random uses of integers and booleans: elements at positions that a tensor has, losses, comparisons and masks.
// Test: tests/random/random_programs_test.cpp.
#pragma once

#include <optional>

#include "random/body.h"

namespace millrace::random_programs {

inline constexpr int kGatherOperators = 6;

// An expression of x, which has axes; nothing if the one that was drawn does not fit.
std::optional<Value> with_integers(Body& body, const Value& x);

}  // namespace millrace::random_programs
