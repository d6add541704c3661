// How long compilers take for a partition's kernel, in multiples of a small one. Test:
// tests/driver/finish_time_test.cpp
#pragma once

#include <algorithm>

#include "candidates/candidates.h"

namespace millrace {

// Long kernels are compiled with fewer passes (device/cpu/kernel_cache.cpp), so that the time grows with the operators:
// two kernels of 180 and 240 operators took as long as some 20 small ones.
inline double kernels_worth(const Partition& partition) {
  constexpr double kOperatorsOfAKernel = 20;  // more take longer
  return std::max(1.0, static_cast<double>(partition.members.size()) / kOperatorsOfAKernel);
}

}  // namespace millrace
