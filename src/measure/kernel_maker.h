// Who compiles candidates, for the explorer: a CPU's kernels in shared objects, a GPU's in cubins.
#pragma once

#include <string>
#include <vector>

#include "device/cpu/kernel_cache.h"
#include "device/gpu_kernel_cache.h"
#include "device/launch.h"
#include "millrace/result.h"

namespace millrace {

// A compiled kernel, as a worker is told of it.
struct MadeKernel {
  std::string name;
  std::string path;
  std::string sha256;
};

class KernelMaker {
 public:
  virtual ~KernelMaker() = default;
  // Follows from all that the machine code does.
  virtual std::string name_of(const Launch& launch) const = 0;
  // One a launch; all of them have a kernel.
  virtual std::vector<Result<MadeKernel>> make(const std::vector<Launch>& launches) const = 0;
  // Calls of make() that are under way end soon, whatever they give back: nobody wants it any more.
  virtual void forget() const {}
};

class CpuKernelMaker : public KernelMaker {
 public:
  CpuKernelMaker(KernelCache cache, int jobs) : cache_(std::move(cache)), jobs_(jobs) {}

  std::string name_of(const Launch& launch) const override { return cache_.name_of({launch.kernel}); }
  std::vector<Result<MadeKernel>> make(const std::vector<Launch>& launches) const override {
    std::vector<KernelSource> sources;
    for (const Launch& launch : launches) sources.push_back({launch.kernel});
    std::vector<Result<MadeKernel>> made;
    for (Result<CompiledKernel>& kernel : cache_.get(sources, jobs_)) {
      if (kernel)
        made.emplace_back(MadeKernel{kernel->name, kernel->path, kernel->sha256});
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
  std::vector<Result<MadeKernel>> make(const std::vector<Launch>& launches) const override {
    std::vector<Result<MadeKernel>> made;
    for (Result<CompiledCubin>& kernel : cache_.get(launches, jobs_)) {
      if (kernel)
        made.emplace_back(MadeKernel{kernel->name, kernel->path, kernel->sha256});
      else
        made.emplace_back(kernel.error());
    }
    return made;
  }
  void forget() const override { cache_.forget(); }

 private:
  GpuKernelCache cache_;
  int jobs_;
};

}  // namespace millrace
