// A plan and the caller's tensors → results, on the CPU. Everything that can be worked out beforehand is, when it is
// loaded: a pass is a loop over its launches. Test: tests/exec/cpu_executor_test.cpp
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/cpu/cpu_launch.h"
#include "device/cpu/kernel_cache.h"
#include "device/cpu/module.h"
#include "device/launch.h"
#include "exec/launch_tensors.h"
#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

// Where kernels come from when the plan's own cannot be used. Asked only then: it may look for a compiler.
using KernelCacheMaker = std::function<Result<KernelCache>()>;

class CpuExecutor {
 public:
  // `launches`: the plan's, lowered. `folder`: where the plan's shared object is; empty: it is not to be used.
  static Result<CpuExecutor> load(const StepPlan& plan, const std::vector<Launch>& launches, const std::string& folder,
                                  const KernelCacheMaker& cache, ExecutorMemory memory = ExecutorMemory::own);

  // What the following runs work on. Gradients may be null for forward alone.
  Result<Done> bind(const CallersTensors& tensors, uint64_t seed, uint32_t step);

  void forward() const { run(0, tensors_.backward()); }
  // With what its own forward saved, which it leaves as it is.
  void backward() const { run(tensors_.backward(), launches_.size()); }
  void step() const { run(0, launches_.size()); }
  // One launch, in the plan's order: for timing.
  void launch(size_t number) const { run(number, number + 1); }

 private:
  struct Free {
    void operator()(char* bytes) const;
  };

  CpuExecutor() = default;
  Result<Done> allocate(const StepPlan& plan);
  void run(size_t first, size_t last) const;

  std::vector<KernelModule> modules_;  // of the kernels
  std::vector<CpuLaunch> launches_;
  std::unique_ptr<char, Free> arena_;  // null: the caller's memory alone
  LaunchTensors tensors_;
  uint64_t seed_ = 0;
  uint32_t step_ = 0;
};

}  // namespace millrace
