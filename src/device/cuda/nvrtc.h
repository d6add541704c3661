// NVRTC, NVIDIA's compiler as a library. Needs neither a GPU nor a driver.
// Test: tests/device/gpu_test.cpp
#pragma once

#include <memory>

#include "device/gpu.h"

namespace millrace {

Result<std::unique_ptr<GpuCompiler>> open_nvrtc();

// Its version and file, or why it is missing.
GpuSoftware inspect_nvrtc();

}  // namespace millrace
