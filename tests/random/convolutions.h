// Random convolutions, pooling, products of elements and cumulative sums. Test: tests/random/random_programs_test.cpp.
#pragma once

#include <optional>

#include "random/body.h"

namespace millrace::random_programs {

// The functions of millrace.numpy that these rules call, for the program's imports.
std::vector<std::string> imported_convolutions();

// A statement's expression of x with one of these functions; nothing if the one that was drawn does not fit.
std::optional<Value> with_convolutions(Body& body, const Value& x);

}  // namespace millrace::random_programs
