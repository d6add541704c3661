// Random calls of named functions: chains of elementwise functions, masks of comparisons, statistics, matrix products
// and tensors made of numbers. Test: tests/random/random_programs_test.cpp.
#pragma once

#include <optional>

#include "random/body.h"

namespace millrace::random_programs {

// The functions of millrace.numpy that these rules call, for the program's imports.
std::vector<std::string> imported_functions();

// A statement's expression of x with several of these functions; nothing if the one that was drawn does not fit.
std::optional<Value> with_named_functions(Body& body, const Value& x);

}  // namespace millrace::random_programs
