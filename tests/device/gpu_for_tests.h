// The GPU and its compiler for tests, from the backend that was built with them, or a reason to skip the test.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "device/gpu.h"

namespace millrace {

inline void use_built_backend() {
#ifdef MILLRACE_CUDA_BACKEND_FILE
  setenv("MILLRACE_CUDA_BACKEND", MILLRACE_CUDA_BACKEND_FILE, 0);
#endif
}

inline Result<std::unique_ptr<Gpu>> gpu_for_tests() {
  use_built_backend();
  return open_gpu();
}

inline Result<std::unique_ptr<GpuCompiler>> gpu_compiler_for_tests() {
  use_built_backend();
  return open_gpu_compiler();
}

}  // namespace millrace
