// A plan and the caller's tensors → results, on the CPU. Loading prepares everything, so that a pass is only a loop
// over launches. Test: tests/exec/cpu_executor_test.cpp
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
#include "exec/executor.h"
#include "exec/launch_tensors.h"
#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

// Makes a cache that compiles kernels. Called only if the plan's own kernels cannot be used, since it may look for a
// compiler.
using KernelCacheMaker = std::function<Result<KernelCache>()>;

class CpuExecutor : public Executor {
 public:
  // `launches`: the plan's, lowered. `folder`: contains the plan's shared object, which is executed; empty: do not
  // use that.
  static Result<CpuExecutor> load(const StepPlan& plan, const std::vector<Launch>& launches, const std::string& folder,
                                  const KernelCacheMaker& cache, ExecutorMemory memory = ExecutorMemory::own);

  Result<Done> bind(const CallersTensors& tensors, uint64_t seed, uint32_t step) override;
  Result<Done> forward() override { return run(0, tensors_.backward()); }
  Result<Done> backward() override { return run(tensors_.backward(), launches_.size()); }
  Result<Done> step() override { return run(0, launches_.size()); }
  Result<Done> launch(size_t number) override { return run(number, number + 1); }
  void set_denormals(Denormals wanted) override { denormals_ = wanted; }

 private:
  struct Free {
    void operator()(char* bytes) const;
  };

  CpuExecutor() = default;
  Result<Done> allocate(const StepPlan& plan);
  bool is_worth_flushing(size_t first, size_t last) const;
  Result<Done> run(size_t first, size_t last) const;

  std::vector<KernelModule> modules_;  // they contain the kernels
  std::vector<CpuLaunch> launches_;
  std::vector<double> predicted_seconds_;  // of each launch
  std::unique_ptr<char, Free> arena_;      // null: works in the caller's memory
  LaunchTensors tensors_;
  Denormals denormals_ = kPlanDenormals;
  int threads_ = 1;  // the most of a launch
  uint64_t seed_ = 0;
  uint32_t step_ = 0;
};

}  // namespace millrace
