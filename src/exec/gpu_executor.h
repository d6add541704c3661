// A plan and the caller's tensors → results, on a GPU. A pass on tensors at new addresses is launched kernel by kernel;
// on addresses seen before it is replayed as a CUDA graph. Passes allocate no memory and do not wait for the GPU. Test:
// tests/exec/gpu_executor_test.cpp
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/cubin_bundle.h"
#include "device/gpu.h"
#include "device/gpu_memory.h"
#include "exec/executor.h"
#include "exec/launch_tensors.h"

namespace millrace {

class GpuExecutor : public Executor {
 public:
  // `launches`: those of the plan, lowered. `cubins`: its kernels, and kExecutorKernel.
  static Result<GpuExecutor> load(std::shared_ptr<Gpu> gpu, const StepPlan& plan, const std::vector<Launch>& launches,
                                  const CubinBundle& cubins, ExecutorMemory memory = ExecutorMemory::own);

  Gpu& gpu() const { return *gpu_; }

  Result<Done> bind(const CallersTensors& tensors, uint64_t seed, uint32_t step) override;
  Result<Done> forward() override { return run(Run::forward); }
  Result<Done> backward() override { return run(Run::backward); }
  // Forward, then backward, then adds one to the step number, so that the next step without a bind() has new masks
  // (unless the caller provides seed and step).
  Result<Done> step() override { return run(Run::step); }
  Result<Done> launch(size_t number) override;
  Gpu* device() const override { return gpu_.get(); }

 private:
  enum class Run { forward, backward, step };
  // A run on tensors at given addresses. A caller's allocator reuses the same few again and again.
  struct Recorded {
    std::vector<void*> tensors;
    const void* scratch = nullptr;
    const void* random = nullptr;
    std::vector<double> scalars;
    int calls = 1;
    std::unique_ptr<GpuGraph> graph;  // null: not recorded yet
  };
  using Recordings = std::vector<Recorded>;  // the most recently used is last

  explicit GpuExecutor(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
  Result<Done> run(Run kind);
  Result<Done> enqueue(Run kind);
  std::pair<size_t, size_t> launches_of(Run kind) const;

  std::shared_ptr<Gpu> gpu_;
  std::vector<std::unique_ptr<GpuLaunch>> launches_;
  std::unique_ptr<GpuLaunch> advance_;
  GpuMemory arena_;
  GpuMemory state_;
  GpuState known_;  // the contents of state_ once all enqueued work is done
  bool has_state_ = false;
  const void* random_ = nullptr;  // seed and step: the caller's, or state_
  int calls_until_recorded_ = 1;
  LaunchTensors tensors_;
  std::array<Recordings, 3> recorded_;  // after launches_: graphs must not outlive them
};

// The launch of the executor's own kernel, and that kernel's name in a bundle.
Launch executor_launch();
inline constexpr const char* kExecutorKernel = "millrace_advance";

}  // namespace millrace
