// A random program with its inputs and results as one line of JSON: what the NumPy check (tests/python/
// random_programs_test.py) compares with.
#pragma once

#include <cstdint>
#include <string>

#include "millrace/result.h"

namespace millrace::random_programs {

// {"seed", "text", "inputs": {name: {"shape", "data"}}, "random_seed", "step",
//  "results": {name: {"shape", "data", "bound"}}}: inputs in the order of the parameters, results in that of the
//  return.
// A by-value scalar's shape is null. `bound` is the bound of each element's rounding error.
Result<std::string> emitted(uint64_t seed);

}  // namespace millrace::random_programs
