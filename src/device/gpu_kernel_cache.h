// GPU kernels from source text to cubins, compiled once and kept on disk. As device/cpu/kernel_cache.h, on the same
// KernelStore; but a cubin a kernel, and compiled in this process.
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
  std::string name;    // in place of MILLRACE_KERNEL in the source; empty: the launch has no kernel
  std::string path;    // in the cache
  std::string sha256;  // of the bytes
  std::string bytes;   // these were verified; the file may be another by now
};

// `text` with `name` in place of every MILLRACE_KERNEL.
std::string with_kernel_name(std::string text, const std::string& name);

// A launch whose grids have the names of the functions in a cubin, as Gpu::prepare wants them.
Launch with_kernel_names(Launch launch, const std::string& name);

class CompileQueue;

class GpuKernelCache {
 public:
  // `architecture`: "sm_90". The compiler must outlive this.
  GpuKernelCache(std::string directory, const GpuCompiler& compiler, std::string prelude, std::string architecture);

  // k_ and 32 digits, which follow from all that the machine code does.
  std::string name_of(const Launch& launch) const;

  // The whole text that is compiled.
  std::string source_of(const Launch& launch) const;

  // Every launch's kernels, or why there are none, in the order of `launches`. `jobs` are compiled at a time, those of
  // other calls that are under way among them, and before them where they came first. One that does not compile spoils
  // no other: its error is of the kind bad_input.
  std::vector<Result<CompiledCubin>> get(const std::vector<Launch>& launches, int jobs,
                                         const CompileProgress& progress = {}) const;

  // Calls that are under way end soon, with errors for what was not begun.
  void forget() const;

 private:
  Result<CompiledCubin> compile(const KernelStore& store, const Launch& launch, const std::string& name) const;

  std::string directory_;
  const GpuCompiler& compiler_;
  std::string prelude_;
  Sha256 names_;  // as they all begin
  std::string architecture_;
  std::shared_ptr<CompileQueue> queue_;  // of all calls
};

}  // namespace millrace
