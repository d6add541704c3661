#include "driver/finish_time.h"

#include <algorithm>
#include <set>
#include <string>

#include "measure/compile_cost.h"

namespace millrace {
namespace {

// The time to compile a kernel, in multiples of the time that a small one takes.
constexpr double kKernel = 0.6;
constexpr double kPrelude = 2.5;                // parsing it, and linking
constexpr double kCoreSecondsAnElement = 4e-8;  // drawn and rounded, by all cores
constexpr double kSecondsAnElement = 5e-9;      // allocated and copied
constexpr double kMostSelecting = 10;
constexpr double kMostTimingSeconds = 2.5;
constexpr double kMostClockSeconds = 2;  // a GPU's clock, and steps with idle gaps if it is throttled
constexpr double kShare = 0.1;           // of the budget, for selecting and for timing
constexpr double kMostShare = 0.7;
constexpr double kBaselineShare = 0.2;
constexpr double kMostGrace = 3;
constexpr double kAllowed = 3;  // seconds after the budget; 5 are promised (docs/optimize.md), but speeds vary

}  // namespace

double select_seconds(double budget) { return std::min(kShare * budget, kMostSelecting); }

double kernels_to_compile(const Graph& graph, const Candidates& candidates) {
  std::set<std::string> known;
  double kernels = 0;
  for (const ChoicePoint& choice_point : candidates.choice_points) {
    for (const int number : choice_point.alternatives.front()) {
      const Partition& partition = candidates.partitions[as_index(number)].partition;
      if (partition.kind == PartitionKind::kernel && known.insert(print_partition(graph, partition)).second)
        kernels += kernels_worth(partition);
    }
  }
  return kernels;
}

double compile_seconds(double kernels, const Machine& machine) {
  if (kernels <= 0) return 0;
  const auto jobs = static_cast<double>(std::max(1, machine.cpu.cores));
  return machine.compiler_seconds * (kPrelude + kKernel * kernels / jobs);
}

double draw_seconds(const Graph& graph, const Machine& machine) {
  double elements = 0;
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    if (graph.tensors[k].role == TensorRole::argument) elements += static_cast<double>(elements_of(graph, TensorId(k)));
  }
  const auto cores = static_cast<double>(std::max(1, machine.cpu.cores));
  return elements * (kSecondsAnElement + kCoreSecondsAnElement / cores);
}

FinishTime finish_time(const Prepared& prepared, const Machine& machine, double budget) {
  // A GPU's kernels were compiled for their trials; a CPU's are compiled again, together.
  const double compiled =
      machine.target().own_memory ? 0 : kernels_to_compile(prepared.training.graph, prepared.candidates);
  const double draws = draw_seconds(prepared.training.graph, machine);
  const double plan = compile_seconds(compiled, machine) + draws + select_seconds(budget);
  const double baseline =
      compile_seconds(static_cast<double>(prepared.training.graph.operators.size()) / 2, machine) + draws;
  const double clock = machine.target().own_memory ? std::min(kShare * budget, kMostClockSeconds) : 0;
  const double timing =
      std::min(kShare * budget, kMostTimingSeconds) + std::min(kBaselineShare * budget, baseline) + clock;
  FinishTime time;
  time.reserved = std::min(plan + timing, kMostShare * budget);
  time.grace = std::clamp(kAllowed - std::max(0.0, plan - time.reserved), 0.0, kMostGrace);
  return time;
}

double grace_seconds(double budget) { return 0.05 * budget + 2; }

}  // namespace millrace
