// Compiles candidates' kernels for the explorer: a CPU's into shared objects, a GPU's into cubins. Test:
// tests/measure/explore_test.cpp
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/backend.h"
#include "device/cpu/kernel_cache.h"
#include "device/gpu_kernel_cache.h"
#include "device/launch.h"
#include "millrace/result.h"

namespace millrace {

// A compiled kernel, as described to a worker.
struct CompiledFile {
  std::string name;
  std::string path;
  std::string sha256;
};

class KernelMaker {
 public:
  virtual ~KernelMaker() = default;
  // A name that depends on everything that the machine code depends on.
  virtual std::string name_of(const Launch& launch) const = 0;
  // One result per launch; all launches must have a kernel.
  virtual std::vector<Result<CompiledFile>> make(const std::vector<Launch>& launches) const = 0;
  // Makes running calls of make() end soon. Nobody needs their results any more.
  virtual void cancel() const {}
};

class CpuKernelMaker : public KernelMaker {
 public:
  CpuKernelMaker(KernelCache cache, int jobs) : cache_(std::move(cache)), jobs_(jobs) {}

  std::string name_of(const Launch& launch) const override { return cache_.name_of({launch.kernel}); }
  std::vector<Result<CompiledFile>> make(const std::vector<Launch>& launches) const override {
    std::vector<KernelSource> sources;
    for (const Launch& launch : launches) sources.push_back({launch.kernel});
    std::vector<Result<CompiledFile>> made;
    for (Result<CompiledKernel>& kernel : cache_.get(sources, jobs_)) {
      if (kernel)
        made.emplace_back(CompiledFile{kernel->name, kernel->path, kernel->sha256});
      else
        made.emplace_back(kernel.error());
    }
    return made;
  }

 private:
  KernelCache cache_;
  int jobs_;
};

class GpuKernelMaker : public KernelMaker {
 public:
  GpuKernelMaker(GpuKernelCache cache, int jobs) : cache_(std::move(cache)), jobs_(jobs) {}

  std::string name_of(const Launch& launch) const override { return cache_.name_of(launch); }
  std::vector<Result<CompiledFile>> make(const std::vector<Launch>& launches) const override {
    std::vector<Result<CompiledFile>> made;
    for (Result<CompiledCubin>& kernel : cache_.get(launches, jobs_)) {
      if (kernel)
        made.emplace_back(CompiledFile{kernel->name, kernel->path, kernel->sha256});
      else
        made.emplace_back(kernel.error());
    }
    return made;
  }
  void cancel() const override { cache_.forget(); }

 private:
  GpuKernelCache cache_;
  int jobs_;
};

// The kernels for this processor that the compiler makes, kept in a directory.
KernelCache cpu_kernel_cache(const std::string& directory, const Compiler& compiler);

// Makes kernels for a backend, with at most `jobs` compilations at a time. `directory`: where they are kept. Null if
// the host has no compiler. The backend must outlive the result.
Result<std::unique_ptr<KernelMaker>> make_kernel_maker(const Backend& backend, const std::string& directory, int jobs);

}  // namespace millrace
