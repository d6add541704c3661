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
#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

// The caller's memory, in the plan's layouts: one an argument or result of the program, in its order. A scalar argument
// is a double; it has no gradient, and what stands there is not looked at. `saved` is what forward leaves for backward,
// `workspace` what a pass works in; both aligned to 64, null: the executor's own.
struct CallersTensors {
  const void* const* arguments = nullptr;
  void* const* results = nullptr;
  const void* const* result_gradients = nullptr;
  void* const* argument_gradients = nullptr;
  void* saved = nullptr;
  void* workspace = nullptr;
};

// Whether an executor brings memory of its own, or works in the caller's alone.
enum class ExecutorMemory { own, callers };

// Where kernels come from when the plan's own cannot be used. Asked only then: it may look for a compiler.
using KernelCacheMaker = std::function<Result<KernelCache>()>;

class CpuExecutor {
 public:
  // `launches`: the plan's, lowered. `folder`: where the plan's shared object is; empty: it is not to be used.
  static Result<CpuExecutor> load(const StepPlan& plan, const std::vector<Launch>& launches, const std::string& folder,
                                  const KernelCacheMaker& cache, ExecutorMemory memory = ExecutorMemory::own);

  // What the following runs work on. Gradients may be null for forward alone.
  void bind(const CallersTensors& tensors, uint64_t seed, uint32_t step);

  void forward() const { run(0, backward_); }
  // With what its own forward saved, which it leaves as it is.
  void backward() const { run(backward_, launches_.size()); }
  void step() const { run(0, launches_.size()); }
  // One launch, in the plan's order: for timing.
  void launch(size_t number) const { run(number, number + 1); }

 private:
  struct Bound {  // a tensor of a launch that is the caller's
    size_t slot;
    BufferPlace place;
    size_t position;
  };
  struct Placed {  // one that lies in the arena
    size_t slot;
    bool saved;
    int64_t offset;  // in the saved part or in the workspace
  };
  struct Free {
    void operator()(char* bytes) const;
  };

  CpuExecutor() = default;
  Result<Done> allocate(const StepPlan& plan);
  void point(const StepPlan& plan);
  void place(char* saved, char* workspace);
  void run(size_t first, size_t last) const;

  std::vector<KernelModule> modules_;  // of the kernels
  std::vector<CpuLaunch> launches_;
  size_t backward_ = 0;                // the first launch of backward
  std::unique_ptr<char, Free> arena_;  // null: the caller's memory alone
  char* own_saved_ = nullptr;          // in the arena
  char* own_workspace_ = nullptr;
  int64_t scratch_offset_ = 0;  // in the workspace
  char* saved_ = nullptr;       // where the placed tensors point to now
  char* workspace_ = nullptr;
  std::vector<void*> tensors_;  // of all launches, one behind the other
  std::vector<size_t> first_;   // one a launch: its first tensor
  std::vector<Bound> bound_;
  std::vector<Placed> placed_;
  std::vector<size_t> scalars_at_;  // positions of scalar arguments that launches use
  std::vector<double> scalars_;     // by position
  uint64_t seed_ = 0;
  uint32_t step_ = 0;
};

}  // namespace millrace
