#include "device/cuda/clock_probe.h"

#include <array>

#include "device/cuda/nvrtc.h"

namespace millrace {

Result<ClockProbe> ClockProbe::make(Gpu& gpu) {
  const Result<std::unique_ptr<GpuCompiler>> compiler = open_nvrtc();
  if (!compiler) return compiler.error();
  Launch counting;
  counting.kernel = kClockSource;
  counting.grids = {{kClockFunction, 1, 1, 0}};
  counting.tensor_count = 1;
  const Result<std::string> cubin = (*compiler)->compile(counting.kernel, gpu.info().architecture());
  if (!cubin) return cubin.error();
  Result<std::unique_ptr<GpuLaunch>> launch = gpu.prepare(counting, *cubin);
  if (!launch) return launch.error();
  Result<GpuMemory> counted = GpuMemory::allocate(gpu, 2 * sizeof(uint64_t));
  if (!counted) return counted.error();
  return ClockProbe(gpu, std::move(*launch), std::move(*counted));
}

Result<double> ClockProbe::hertz() {
  void* counted = counted_.data();
  if (Result<Done> put = launch_->run(&counted, nullptr, nullptr, nullptr); !put) return put.error();
  std::array<uint64_t, 2> cycles_and_nanoseconds{};
  const Result<Done> read = gpu_->copy_out(cycles_and_nanoseconds.data(), counted, counted_.size());
  if (!read) return read.error();
  return static_cast<double>(cycles_and_nanoseconds[0]) / static_cast<double>(cycles_and_nanoseconds[1]) * 1e9;
}

}  // namespace millrace
