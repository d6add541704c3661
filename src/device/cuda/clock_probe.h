// Measures the clock at which the multiprocessors run. GPUs lower it to limit power or heat.
// Test: tests/device/cuda/cuda_gpu_test.cpp
#pragma once

#include <memory>
#include <utility>

#include "device/gpu_memory.h"

namespace millrace {

// Counts cycles and nanoseconds of one thread for 50 µs, from one tick of the timer to another: on some GPUs ticks are
// a microsecond apart. Its parameter is that of kernel_parameters.h; launches of another size are rejected.
inline constexpr const char* kClockSource = R"(
struct Parameters { unsigned long long* counted[1]; double values[1]; const void* state; char* scratch; unsigned subsequences[1]; };
__device__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
static_assert(sizeof(Parameters) == 40, "kernel_parameters.h");
extern "C" __global__ void count_cycles(const Parameters p) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  const unsigned long long before = nanoseconds();
  unsigned long long begin = before;
  while (begin == before) begin = nanoseconds();
  const long long first = clock64();
  unsigned long long end = begin;
  while (end - begin < 50000) end = nanoseconds();
  p.counted[0][0] = clock64() - first;
  p.counted[0][1] = end - begin;
}
)";
inline constexpr const char* kClockFunction = "count_cycles";

class ClockProbe {
 public:
  // The GPU must outlive this.
  static Result<ClockProbe> make(Gpu& gpu);
  // Runs after the work on the stream, and waits for it.
  Result<double> hertz();

 private:
  ClockProbe(Gpu& gpu, std::unique_ptr<GpuLaunch> launch, GpuMemory counted)
      : gpu_(&gpu), launch_(std::move(launch)), counted_(std::move(counted)) {}

  Gpu* gpu_;
  std::unique_ptr<GpuLaunch> launch_;
  GpuMemory counted_;
};

}  // namespace millrace
