// Random programs of Millrace's language, valid by construction: small sizes with primes and ones,
// fan-out, several results, and mostly what transformers are made of. Test: tests/random/random_programs_test.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace millrace::random_programs {

// Campaigns check many more small programs than full ones: their checks take a tenth of the time.
enum class ProgramSize {
  full,   // 1 to 60 operators, extents of up to 12
  small,  // most have 1 to 20 operators, extents of up to 6; too small for attention and other long motifs
};

// The same text for the same seed on every platform.
std::string random_program(uint64_t seed, ProgramSize size = ProgramSize::full);

}  // namespace millrace::random_programs
