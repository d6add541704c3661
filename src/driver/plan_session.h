// A loaded plan on its device, with tensors of its own: what run, bench, optimize and the check of a plan work with.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "driver/callers_tensors.h"
#include "driver/plan_folder.h"
#include "exec/cpu_executor.h"
#include "exec/gpu_executor.h"

namespace millrace {

class PlanSession {
 public:
  // The plan must outlive it.
  static Result<PlanSession> open(const LoadedPlan& loaded);

  // What the caller gives: arguments and the results' gradients, row-major, one a tensor of the graph.
  Result<Done> put(const Values<double>& given);
  // Results and the arguments' gradients.
  Result<Done> take(Values<double>& values);

  // Behind put(). On a GPU all of these only put work on its stream.
  Result<Done> bind(uint64_t seed, uint32_t step);
  Result<Done> forward();
  Result<Done> backward();
  Result<Done> step();
  Result<Done> launch(size_t number);

  // What a pass takes, by the device's clock. On a GPU it is repeated so many times, and the mean is given.
  Result<double> seconds_of_pass(const std::function<Result<Done>()>& pass, int repeats = 8);
  // What a launch takes; on a GPU from a cold cache.
  Result<double> seconds_of_launch(size_t number);

  // Behind what ran: a GPU's clock, by its highest. Nothing where it cannot be told.
  std::optional<double> relative_clock();

  size_t launches() const { return loaded_->plan.launches.size(); }
  std::string device() const;  // in words

 private:
  explicit PlanSession(const LoadedPlan& loaded) : loaded_(&loaded) {}

  CallersTensors pointers() const;

  const LoadedPlan* loaded_;
  std::unique_ptr<Executor> executor_;
  Gpu* gpu_ = nullptr;                            // the executor's; null on the CPU
  std::unique_ptr<CallersMemory> memory_;         // in the host's memory
  std::vector<GpuMemory> on_gpu_;                 // the same tensors there
  std::vector<std::vector<void*>> gpu_pointers_;  // of the four lists
  GpuMemory flushed_;                             // more than the GPU's cache holds
};

}  // namespace millrace
