// A plan and the caller's tensors → results, on a GPU: a pass is a CUDA graph, or its launches one behind the other
// where the tensors are where they were not yet. Nothing is allocated, and nothing waits.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/gpu.h"
#include "device/gpu_memory.h"
#include "exec/launch_tensors.h"

namespace millrace {

class GpuExecutor {
 public:
  // `launches`: the plan's, lowered. `cubin`: all of its kernels, under the names that the plan has for them.
  static Result<GpuExecutor> load(std::shared_ptr<Gpu> gpu, const StepPlan& plan, const std::vector<Launch>& launches,
                                  const std::string& cubin, ExecutorMemory memory = ExecutorMemory::own);

  Gpu& gpu() const { return *gpu_; }

  // What the following runs work on: addresses on the device. Gradients may be null for forward alone.
  Result<Done> bind(const CallersTensors& tensors, uint64_t seed, uint32_t step);

  // All of them only put work on the GPU's stream.
  Result<Done> forward() { return run(Pass::forward_only); }
  Result<Done> backward() { return run(Pass::backward_only); }
  // Forward, then backward, and the step's number grows by one: the next one without a bind() draws other masks. (Not
  // where seed and step are the caller's.)
  Result<Done> step() { return run(Pass::whole); }
  // One launch, in the plan's order: for timing.
  Result<Done> launch(size_t number);

 private:
  enum class Pass { forward_only, backward_only, whole };
  // A pass on tensors at certain places. A caller's allocator gives it the same few again and again.
  struct Recorded {
    std::vector<void*> tensors;
    const void* scratch = nullptr;
    const void* random = nullptr;
    std::vector<double> scalars;
    int calls = 1;
    std::unique_ptr<GpuGraph> graph;  // null: not worth recording yet
  };
  using Recordings = std::vector<Recorded>;  // the last one used is the last

  explicit GpuExecutor(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
  Result<Done> run(Pass pass);
  Result<Done> put(Pass pass);
  std::pair<size_t, size_t> launches_of(Pass pass) const;

  std::shared_ptr<Gpu> gpu_;
  std::vector<std::unique_ptr<GpuLaunch>> launches_;
  std::unique_ptr<GpuLaunch> advance_;
  GpuMemory arena_;
  GpuMemory state_;
  GpuState known_;  // what state_ holds when all that is on the stream is done
  bool has_state_ = false;
  const void* random_ = nullptr;  // the caller's, or state_
  int calls_until_recorded_ = 1;
  LaunchTensors tensors_;
  std::array<Recordings, 3> recorded_;  // after launches_: graphs do not outlive what they are made of
};

// The source of all kernels of a plan, under the names in `functions` (one a launch, empty where it has none), and of
// what the executor itself needs.
std::string gpu_plan_source(const std::vector<Launch>& launches, const std::vector<std::string>& functions,
                            const std::string& prelude);

}  // namespace millrace
