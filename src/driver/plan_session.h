// A loaded plan on its device, with its own tensors, for run, bench, optimize and the check of a plan. Test:
// tests/python/optimize_test.py
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "device/gpu_memory.h"
#include "driver/callers_tensors.h"
#include "driver/plan_folder.h"
#include "exec/executor.h"

namespace millrace {

class PlanSession {
 public:
  // `loaded` must outlive the session.
  static Result<PlanSession> open(const LoadedPlan& loaded);

  // How the following passes treat denormals; on the CPU they are flushed unless told otherwise.
  void set_denormals(Denormals wanted) { executor_->set_denormals(wanted); }

  // Copies in arguments and results' gradients, row-major, one per tensor of the graph.
  Result<Done> put(const Values<double>& given);
  // Copies out results and arguments' gradients.
  Result<Done> take(Values<double>& values);

  // After put(). On a GPU these only enqueue work.
  Result<Done> bind(uint64_t seed, uint32_t step);
  Result<Done> forward();
  Result<Done> backward();
  Result<Done> step();
  Result<Done> launch(size_t number);

  // The time of a pass, by the device's clock. On a GPU the mean of `repeats` passes.
  Result<double> seconds_of_pass(const std::function<Result<Done>()>& pass, int repeats = 8);
  // The time of a launch; on a GPU with a cold cache.
  Result<double> seconds_of_launch(size_t number);

  // A GPU's clock after the enqueued work, relative to its maximum. Empty if it is unknown.
  std::optional<double> relative_clock();

  size_t launches() const { return loaded_->plan.launches.size(); }
  std::string device() const;  // its name, for people

 private:
  explicit PlanSession(const LoadedPlan& loaded) : loaded_(&loaded) {}

  CallersTensors pointers() const;

  const LoadedPlan* loaded_;
  std::unique_ptr<Executor> executor_;
  Gpu* gpu_ = nullptr;                            // the executor's device(): null if tensors are in host memory
  std::unique_ptr<CallersMemory> memory_;         // in host memory
  std::vector<GpuMemory> on_gpu_;                 // the same tensors in GPU memory
  std::vector<std::vector<void*>> gpu_pointers_;  // of the four lists
  GpuMemory flushed_;                             // larger than the GPU's L2 cache
};

}  // namespace millrace
