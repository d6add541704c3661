// Compiles GPU kernels from source text to cubins, once, and keeps them on disk. Like device/cpu/kernel_cache.h and on
// the same KernelStore, but with one cubin per kernel, compiled in this process.
// Test: tests/device/gpu_test.cpp
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/gpu.h"
#include "device/kernel_store.h"
#include "device/launch.h"
#include "millrace/result.h"

namespace millrace {

struct CompiledCubin {
  std::string name;    // replaces MILLRACE_KERNEL in the source; empty: the launch has no kernel
  std::string path;    // in the cache
  std::string sha256;  // of the bytes
  std::string bytes;   // verified; the file may have changed since
};

// `text` with `name` in place of every MILLRACE_KERNEL.
std::string with_kernel_name(std::string text, const std::string& name);

// A launch whose grids have the function names of a cubin, as Gpu::prepare expects them.
Launch with_kernel_names(Launch launch, const std::string& name);

class CompileQueue;

class GpuKernelCache {
 public:
  // `architecture`: "sm_90". The compiler must outlive this.
  GpuKernelCache(std::string directory, const GpuCompiler& compiler, std::string prelude, std::string architecture);

  const std::string& architecture() const { return architecture_; }

  // k_ and 32 digits: a hash of everything that the machine code depends on.
  std::string name_of(const Launch& launch) const;

  // The whole text that is compiled.
  std::string source_of(const Launch& launch) const;

  // The kernels of every launch, or why they could not be compiled, in the order of `launches`. At most `jobs` are
  // compiled at a time; kernels of earlier calls come first. A kernel that does not compile affects no other: its error
  // has the kind bad_input.
  std::vector<Result<CompiledCubin>> get(const std::vector<Launch>& launches, int jobs,
                                         const CompileProgress& progress = {}) const;

  // Makes running calls end soon, with errors for kernels whose compilation has not begun.
  void forget() const;

 private:
  Result<CompiledCubin> compile(const KernelStore& store, const Launch& launch, const std::string& name) const;

  std::string directory_;
  const GpuCompiler& compiler_;
  std::string prelude_;
  Sha256 names_;  // the common beginning of all names
  std::string architecture_;
  std::shared_ptr<CompileQueue> queue_;  // of all calls
};

}  // namespace millrace
