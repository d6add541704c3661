// How fast the processor can compute and move data at most, measured, with a margin. A candidate that would be too slow
// even at these rates needs no trial (measure/lower_bounds.h). Test: tests/device/cpu/ceilings_test.cpp
#pragma once

#include <cstdint>

namespace millrace {

// Measured rates are raised by this factor: at another moment, or with other instructions, they may be higher.
inline constexpr double kCeilingMargin = 1.25;
inline constexpr double kMemoryMargin = 2;  // other processes use the memory too, sometimes more, sometimes less

// Per second. 0: unknown, no limit.
struct Ceilings {
  double flop = 0;          // of one thread, in float32
  double cache_bytes = 0;   // of one thread: loads and stores, from the fastest cache
  double memory_bytes = 0;  // of all threads together
};

struct CeilingOptions {
  int threads = 1;
  int64_t last_level_cache = 0;  // bytes; 0: do not measure the memory
};

// Takes some milliseconds, and with the memory about a tenth of a second.
Ceilings measure_ceilings(const CeilingOptions& options);

}  // namespace millrace
