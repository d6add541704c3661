// Random programs of Millrace's language, valid by construction: 1 to 60 operators, small sizes with primes and ones,
// fan-out, several results, and mostly what transformers are made of. Test: tests/random/random_programs_test.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace millrace::random_programs {

// The same text for the same seed on every platform.
std::string random_program(uint64_t seed);

}  // namespace millrace::random_programs
