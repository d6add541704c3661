// The oracle on the emulated GPU or on a real one, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "codegen/cuda/generate.h"
#include "device/emulated/emulated_gpu.h"
#include "device/gpu_for_tests.h"
#include "device/gpu_kernel_cache.h"
#include "oracle/oracle.h"
#include "reference/bounded.h"
#include "reference/interpreter.h"

namespace millrace {

enum class OracleMachine { emulated, cuda };

// A GPU and an oracle on it; `missing` says why there is none.
struct OracleOnMachine {
  OracleOnMachine(OracleMachine machine, const std::string& folder) {
    const bool real = machine == OracleMachine::cuda;
    Result<std::unique_ptr<Gpu>> opened = real ? gpu_for_tests() : emulated::make_gpu();
    Result<std::unique_ptr<GpuCompiler>> found = real ? gpu_compiler_for_tests() : emulated::make_compiler();
    if (!opened || !found) {
      missing = to_string(!opened ? opened.error() : found.error());
      return;
    }
    gpu = std::move(*opened);
    compiler = std::move(*found);
    cache =
        std::make_unique<GpuKernelCache>(folder, *compiler, std::string(cuda_hardware()), gpu->info().architecture());
    Result<Oracle> made = Oracle::make(*gpu, *cache);
    EXPECT_TRUE(made) << to_string(made.error());
    if (made) oracle = std::make_unique<Oracle>(std::move(*made));
  }

  OracleMemory memory() const {
    return [this](int64_t bytes) { return GpuMemory::allocate(*gpu, bytes); };
  }

  template <class T>
  GpuMemory upload(const std::vector<T>& values) const {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    Result<GpuMemory> made = GpuMemory::allocate(*gpu, bytes);
    EXPECT_TRUE(made) << to_string(made.error());
    EXPECT_TRUE(gpu->copy_in(made->data(), values.data(), bytes));
    return std::move(*made);
  }

  template <class T>
  std::vector<T> download(const void* from, int64_t count) const {
    std::vector<T> values(static_cast<size_t>(count));
    EXPECT_TRUE(gpu->copy_out(values.data(), from, count * static_cast<int64_t>(sizeof(T))));
    return values;
  }

  std::string missing;
  std::unique_ptr<Gpu> gpu;
  std::unique_ptr<GpuCompiler> compiler;
  std::unique_ptr<GpuKernelCache> cache;
  std::unique_ptr<Oracle> oracle;
};

}  // namespace millrace
