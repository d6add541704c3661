// Random programs: their derivatives and fused groups against the reference, and whole plans of them on the CPU.
#include <gtest/gtest.h>

#include "campaigns/checks/quick_kernels.h"
#include "campaigns/checks/slice.h"
#include "exec/run_plan.h"
#include "frontend/frontend.h"
#include "plan/launched_partition.h"
#include "plan/random_plan.h"
#include "random/check.h"
#include "random/generator.h"

namespace millrace::campaigns {
namespace {

void check_random_program(uint64_t seed, Report& report) {
  const auto verdict = millrace::random_programs::check_program(millrace::random_programs::random_program(seed), seed);
  if (verdict.complaint) return report.fail(seed, *verdict.complaint);
  report.count("programs");
  report.count("operators", verdict.operators);
}

// Compiling the kernels of larger ones takes minutes; one plan in four may be of a larger program than the others.
size_t most_operators(uint64_t seed) { return seed % 4 == 0 ? 20 : 10; }

// Random alternatives, candidates and conversions.
PlanChoice choice_of(uint64_t seed) {
  PlanChoice choice;
  choice.seed = seed;
  choice.dtype = "float64";  // with less precision, rounding may change a comparison's outcome
  choice.most = 50;
  choice.conversions = seed % 2 == 0 ? MadeConversions::direct : MadeConversions::chained;
  return choice;
}

// Most kernels are compiled quickly, since candidates are checked elsewhere: this is about plans.
constexpr uint64_t kAsUsersCompile = 16;

Result<CpuExecutor> quick_executor_of(const MadePlan& made, const QuickKernels& kernels) {
  const Result<std::vector<Launch>> launches = lower_plan(made.plan, made.training, made.candidates);
  if (!launches) return launches.error();
  std::vector<KernelSource> sources;
  for (const Launch& launch : *launches)
    if (!launch.kernel.empty()) sources.push_back({launch.kernel});
  static_cast<void>(kernels.cache().get(sources, 1));  // in one call of the compiler
  return CpuExecutor::load(made.plan, *launches, "", [&]() -> Result<KernelCache> { return kernels.cache(); });
}

void check_planned_program(uint64_t seed, const QuickKernels& kernels, Report& report) {
  const std::string text = millrace::random_programs::random_program(seed);
  const Result<Graph> graph = parse_program(text, ProgramOptions{});
  if (!graph || graph->operators.size() > most_operators(seed)) return report.count("larger programs, left out");
  const MadePlan made = make_plan(text, choice_of(seed));
  if (made.plan.launches.empty()) return report.fail(seed, "no plan");
  Result<CpuExecutor> executor = seed % kAsUsersCompile == 0 ? executor_of(made) : quick_executor_of(made, kernels);
  if (!executor) return report.fail(seed, to_string(executor.error()));
  const Values<double> given = drawn_values(made.training, seed);
  const RandomState random{seed, 3};
  const std::string wrong = difference_from_reference(made, given, random, run_plan(made, *executor, given, random));
  if (!wrong.empty()) return report.fail(seed, wrong);
  report.count("plans");
  report.count("launches", made.plan.launches.size());
}

}  // namespace

Check random_programs() { return check_random_program; }

Check planned_programs() {
  const Result<QuickKernels> kernels = QuickKernels::make(TriedOn::cpu);
  return [kernels](uint64_t seed, Report& report) {
    if (!kernels) return report.fail(seed, to_string(kernels.error()));
    check_planned_program(seed, *kernels, report);
  };
}

}  // namespace millrace::campaigns
