// Runs plans on drawn tensors and compares them with the reference.
#pragma once

#include <string>
#include <vector>

#include "device/cpu/kernel_cache.h"
#include "exec/cpu_executor.h"
#include "plan/random_plan.h"
#include "reference/interpreter.h"

namespace millrace {

// A buffer's layout, and the tensor of a buffer of the caller.
const Layout& layout_of(const MadePlan& made, const PlanBuffer& buffer, TensorId tensor);
TensorId callers_tensor(const TrainingGraph& training, const PlanBuffer& buffer);

// Memory for the caller's tensors: a block for each, or for several that are stacked.
struct CallersPlace {
  size_t block = 0;
  int64_t offset = 0;
};
struct CallersPlaces {
  std::vector<int64_t> bytes;           // one per block
  std::vector<CallersPlace> locations;  // one per buffer of the plan; unset for one in the arena
};
CallersPlaces callers_places(const MadePlan& made);

// Shared by all tests of a build, so that each kernel is compiled once.
Result<KernelCache> test_kernel_cache();

// Compiles all kernels of these plans together.
void compile_kernels(const std::vector<const MadePlan*>& plans);

Result<CpuExecutor> executor_of(const MadePlan& made);

// Arguments and results' gradients, rounded to their types; one per tensor of the graph.
Values<double> drawn_values(const TrainingGraph& training, uint64_t seed);

// Results and argument gradients of a step on poisoned memory; one per tensor of the graph.
Values<double> run_plan(const MadePlan& made, CpuExecutor& executor, const Values<double>& given, RandomState random);

// Compares `found` with the reference; empty if they agree: float64 within 1e-10 of a tensor's largest element, other
// types within the bound of their rounding errors, and float64 within that bound too if exact gradients are zero. For
// half precision as if every operation rounded to it, since stored intermediates are.
std::string difference_from_reference(const MadePlan& made, const Values<double>& given, RandomState random,
                                      const Values<double>& found);

}  // namespace millrace
