// The GPU and its compiler as tests get them: from the backend that was built with the tests, or a reason to skip.
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
