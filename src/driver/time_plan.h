// A loaded plan's times: the passes in whole, and launch by launch.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/cpu_executor.h"
#include "measure/statistics.h"

namespace millrace {

inline constexpr uint64_t kTimingSeed = 1;  // of the inputs and the masks

struct PassTimes {
  Estimate forward;
  Estimate backward;
  Estimate step;
};

// Steps for about `seconds`, behind some that warm the machine up, and at least as many as an interval takes.
PassTimes time_passes(CpuExecutor& executor, const CallersTensors& tensors, double seconds);

// The same with every launch timed by itself; without warming up.
std::vector<Estimate> time_launches(CpuExecutor& executor, const CallersTensors& tensors, size_t launches,
                                    double seconds);

}  // namespace millrace
