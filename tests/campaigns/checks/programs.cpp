// Random programs: their derivatives and fused groups against the reference, and whole plans of them on the CPU.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>

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

using millrace::random_programs::ProgramSize;

// Small programs are checked in a tenth of the time, so that there can be many. One in 16 is a full one, with
// attention and with more that is connected.
constexpr uint64_t kFull = 16;

ProgramSize size_of(uint64_t seed) { return seed % kFull == 0 ? ProgramSize::full : ProgramSize::small; }

std::string program_of(uint64_t seed) { return millrace::random_programs::random_program(seed, size_of(seed)); }

void check_random_program(uint64_t seed, Report& report) {
  const auto verdict = millrace::random_programs::check_program(program_of(seed), seed);
  if (verdict.complaint) return report.fail(seed, *verdict.complaint);
  report.count("programs");
  if (size_of(seed) == ProgramSize::small) report.count("of these small");
  report.count("operators", verdict.operators);
}

// Compiling the kernels of larger ones takes minutes.
constexpr size_t kMostOperators = 20;

// Random alternatives, candidates and conversions.
PlanChoice choice_of(uint64_t seed) {
  PlanChoice choice;
  choice.seed = seed;
  choice.dtype = "float64";  // with less precision, rounding may change a comparison's outcome
  choice.most = 50;
  choice.conversions = seed / kFull % 2 == 0 ? MadeConversions::direct : MadeConversions::chained;
  return choice;
}

// Most kernels are compiled quickly, since candidates are checked elsewhere: this is about plans.
constexpr uint64_t kAsUsersCompile = 15;

bool is_compiled_quickly(uint64_t seed) { return seed % kAsUsersCompile != 0; }

struct PlannedProgram {
  MadePlan made;
  std::vector<Launch> launches;
};

// Nothing if the program is too large.
std::optional<Result<PlannedProgram>> planned_program(uint64_t seed) {
  const std::string text = program_of(seed);
  const Result<Graph> graph = parse_program(text, ProgramOptions{});
  if (!graph) return graph.error();
  if (graph->operators.size() > kMostOperators) return std::nullopt;
  MadePlan made = make_plan(text, choice_of(seed));
  if (made.plan.launches.empty()) return Error::make(ErrorKind::failed, "no plan");
  Result<std::vector<Launch>> launches = lower_plan(made.plan, made.training, made.candidates);
  if (!launches) return launches.error();
  return PlannedProgram{std::move(made), std::move(*launches)};
}

// Plans of successive seeds, whose kernels are compiled together: a call of the compiler takes as long for the prelude
// as for many kernels.
class PlannedPrograms {
 public:
  explicit PlannedPrograms(QuickKernels kernels) : kernels_(std::move(kernels)) {}

  void check(uint64_t seed, Report& report) {
    if (!made_.contains(seed)) make_from(seed);
    const std::optional<Result<PlannedProgram>> program = std::move(made_.extract(seed).mapped());
    if (!program) return report.count("larger programs, left out");
    if (!*program) return report.fail(seed, to_string(program->error()));
    check_plan(seed, **program, report);
  }

 private:
  static constexpr uint64_t kTogether = 16;  // plans

  void make_from(uint64_t first) {
    made_.clear();
    std::vector<KernelSource> sources;
    for (uint64_t seed = first; seed < first + kTogether; ++seed) {
      const auto& program = made_.emplace(seed, planned_program(seed)).first->second;
      if (!program || !*program || !is_compiled_quickly(seed)) continue;
      for (const Launch& launch : (*program)->launches)
        if (!launch.kernel.empty()) sources.push_back({launch.kernel});
    }
    static_cast<void>(kernels_.cache().get(sources, 1));
  }

  Result<CpuExecutor> executor_of_program(uint64_t seed, const PlannedProgram& program) const {
    if (!is_compiled_quickly(seed)) return executor_of(program.made);
    return CpuExecutor::load(program.made.plan, program.launches, "",
                             [&]() -> Result<KernelCache> { return kernels_.cache(); });
  }

  void check_plan(uint64_t seed, const PlannedProgram& program, Report& report) const {
    Result<CpuExecutor> executor = executor_of_program(seed, program);
    if (!executor) return report.fail(seed, to_string(executor.error()));
    const MadePlan& made = program.made;
    const Values<double> given = drawn_values(made.training, seed);
    const RandomState random{seed, 3};
    const std::string wrong = difference_from_reference(made, given, random, run_plan(made, *executor, given, random));
    if (!wrong.empty()) return report.fail(seed, wrong);
    report.count("plans");
    if (size_of(seed) == ProgramSize::small) report.count("of these of small programs");
    if (!is_compiled_quickly(seed)) report.count("of these compiled as users do");
    report.count("launches", made.plan.launches.size());
  }

  QuickKernels kernels_;
  std::map<uint64_t, std::optional<Result<PlannedProgram>>> made_;
};

}  // namespace

Check random_programs() { return check_random_program; }

Check planned_programs() {
  Result<QuickKernels> kernels = QuickKernels::make(TriedOn::cpu);
  if (!kernels) {
    return [error = kernels.error()](uint64_t seed, Report& report) { report.fail(seed, to_string(error)); };
  }
  const auto programs = std::make_shared<PlannedPrograms>(std::move(*kernels));
  return [programs](uint64_t seed, Report& report) { programs->check(seed, report); };
}

}  // namespace millrace::campaigns
