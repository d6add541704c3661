#include "driver/finish_time.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr double kKernelSeconds = 0.2;      // one kernel, by the host's compiler or by NVRTC
constexpr double kCompilerSeconds = 0.6;    // starting it, and linking
constexpr double kSecondsAnElement = 4e-8;  // drawn, rounded and copied
constexpr double kMostSelecting = 10;
constexpr double kMostTiming = 2.5;
constexpr double kShare = 0.1;  // of the budget, for selecting and for timing
constexpr double kMostShare = 0.5;

size_t kernels_of(const Prepared& prepared) {
  size_t kernels = 0;
  for (const ChoicePoint& choice_point : prepared.candidates.choice_points) {
    for (const int number : choice_point.alternatives.front()) {
      const Partition& partition = prepared.candidates.partitions[static_cast<size_t>(number)].partition;
      kernels += partition.kind == PartitionKind::kernel ? 1 : 0;
    }
  }
  return kernels;
}

}  // namespace

double select_seconds(double budget) { return budget > 0 ? std::min(kShare * budget, kMostSelecting) : kMostSelecting; }

double compile_seconds(size_t kernels, const Machine& machine) {
  if (kernels == 0) return 0;
  const auto jobs = static_cast<double>(std::max(1, machine.cpu.cores));
  return kCompilerSeconds + kKernelSeconds * static_cast<double>(kernels) / jobs;
}

double draw_seconds(const Graph& graph) {
  double elements = 0;
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    if (graph.tensors[k].role == TensorRole::argument) elements += static_cast<double>(elements_of(graph, TensorId(k)));
  }
  return elements * kSecondsAnElement;
}

double finish_seconds(const Prepared& prepared, const Machine& machine, double budget) {
  // A GPU's kernels were compiled for their trials; a CPU's are compiled again, together.
  const size_t compiled = machine.target().own_memory ? 0 : kernels_of(prepared);
  const double needed = compile_seconds(compiled, machine) + draw_seconds(prepared.training.graph) +
                        select_seconds(budget) + std::min(kShare * budget, kMostTiming);
  return std::min(needed, kMostShare * budget);
}

double grace_seconds(double budget) { return 0.05 * budget + 2; }

}  // namespace millrace
