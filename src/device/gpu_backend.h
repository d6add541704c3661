// The contract between libmillrace_cuda.so and the programs that load it: the functions that it exports, and a version
// that matches only if both were built from the same headers by compilers with the same class layout.
// Test: tests/device/gpu_test.cpp
#pragma once

#include <memory>
#include <string>

#include "device/gpu.h"
#include "millrace/result.h"

namespace millrace {

// MILLRACE_GPU_ABI: a hash of the headers, computed by CMake.
#define MILLRACE_GPU_TEXT_OF(x) #x
#define MILLRACE_GPU_TEXT(x) MILLRACE_GPU_TEXT_OF(x)
inline constexpr const char* kGpuBackendVersion =
    MILLRACE_GPU_ABI " c++ " MILLRACE_GPU_TEXT(__GXX_ABI_VERSION) " strings " MILLRACE_GPU_TEXT(_GLIBCXX_USE_CXX11_ABI);
#undef MILLRACE_GPU_TEXT
#undef MILLRACE_GPU_TEXT_OF

using GpuBackendVersion = const char* (*)();
using OpenGpu = void (*)(Result<std::unique_ptr<Gpu>>* result);
using OpenGpuCompiler = void (*)(Result<std::unique_ptr<GpuCompiler>>* result);
using InspectGpu = void (*)(GpuReport* report);

inline constexpr const char* kGpuBackendVersionName = "millrace_cuda_version";
inline constexpr const char* kOpenGpuName = "millrace_cuda_open_gpu";
inline constexpr const char* kOpenGpuCompilerName = "millrace_cuda_open_gpu_compiler";
inline constexpr const char* kInspectGpuName = "millrace_cuda_inspect";

}  // namespace millrace
