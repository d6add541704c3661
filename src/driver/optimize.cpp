// `millrace optimize`: program to plan, and what was gained.
#include <algorithm>
#include <chrono>
#include <limits>
#include <map>

#include "base/text.h"
#include "device/cpu/cpu_launch.h"
#include "driver/callers_tensors.h"
#include "driver/check_plan.h"
#include "driver/given_tensors.h"
#include "driver/plan_folder.h"
#include "driver/tuning.h"
#include "measure/statistics.h"
#include "millrace/millrace.h"
#include "plan/build.h"
#include "plan/launched_part.h"
#include "plan/verify.h"
#include "report/exploration_report.h"
#include "report/optimize_report.h"
#include "select/select.h"
#include "select/verify.h"

namespace millrace {
namespace {

constexpr double kReferenceSeconds = 20;  // that the check of the whole plan may take
constexpr double kStepSeconds = 2;        // for timing the step

// Every operator by itself, with tensors as the program writes them: what there was before. 0 where one was not
// measured.
double unfused_seconds(const Candidates& candidates, const Measurements& measurements) {
  std::map<std::string, const MeasuredPart*> measured;
  for (const MeasuredPart& part : measurements.parts) measured[part.name] = &part;
  double total = 0;
  for (const PartCandidates& of : candidates.parts) {
    if (of.part.operators.size() != 1) continue;
    const auto found = measured.find(of.part.name);
    double best = std::numeric_limits<double>::infinity();
    for (size_t way = 0; found != measured.end() && way < found->second->ways.size(); ++way) {
      const MeasuredWay& candidate = found->second->ways[way];
      std::vector<int> tensors = found->second->reads;
      tensors.insert(tensors.end(), found->second->writes.begin(), found->second->writes.end());
      bool written = true;
      for (size_t k = 0; k < tensors.size(); ++k)
        written = written &&
                  candidate.layouts[k] == std::max(0, measurements.tensors[static_cast<size_t>(tensors[k])].pinned);
      if (written) best = std::min(best, candidate.seconds);
    }
    if (best == std::numeric_limits<double>::infinity()) return 0;
    total += best;
  }
  return total;
}

Estimate time_step(const LoadedPlan& loaded, CpuExecutor& executor) {
  using Clock = std::chrono::steady_clock;
  Values<double> given(loaded.training.graph.tensors.size());
  draw_missing(loaded.training.graph, given_tensors(loaded.training), 1, given);
  const CallersMemory memory(loaded, given);
  const auto once = [&](uint32_t step) {
    const Clock::time_point begin = Clock::now();
    executor.bind(memory.pointers(), 1, step);
    executor.step();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  for (uint32_t step = 0; step < 3; ++step) once(step);
  std::vector<double> samples;
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kStepSeconds));
  while (samples.size() < 6 || (samples.size() < 10'000 && Clock::now() < end))
    samples.push_back(once(static_cast<uint32_t>(samples.size())));
  return estimate(std::move(samples));
}

std::string stem_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name.ends_with(".py")) name.resize(name.size() - 3);
  return name;
}

}  // namespace

Result<std::string> optimize_program(const OptimizeOptions& options) {
  const ExploreOptions& explore = options.explore;
  if (options.method != "exact" && options.method != "sssp")
    return Error::make(ErrorKind::bad_input, concat("--method ", options.method, ": no such method"),
                       "use exact or sssp");
  const Result<Tuned> tuned = tune(explore, true, nullptr);
  if (!tuned) return tuned.error();
  const Measurements& measurements = tuned->explored.measurements;
  const Result<Selection> selection =
      select(measurements, options.method == "sssp" ? SelectMethod::sssp : SelectMethod::exact);
  if (!selection) return selection.error();
  if (Result<Done> checked = verify(measurements, *selection); !checked) return checked.error();

  PlanOptions planning;
  const TuneProgram& program = tuned->program;
  planning.program = {program.source.path,  program.text,         program.source.entry,
                      program.source.sizes, program.source.dtype, program.layouts};
  planning.version = version();
  planning.device = tuned->machine.text();
  planning.date = utc_now();
  planning.default_cost = unfused_seconds(tuned->prepared.candidates, measurements);
  planning.scratch_bytes = [](const Launch& launch) {
    const Result<CpuLaunch> prepared = CpuLaunch::prepare(launch, nullptr);
    return prepared ? prepared->scratch_bytes() : 0;
  };
  Result<StepPlan> plan =
      build_plan(tuned->prepared.training, tuned->prepared.candidates, measurements, *selection, planning);
  if (!plan) return plan.error();
  if (Result<Done> checked = verify(*plan, tuned->prepared.training, tuned->prepared.candidates); !checked)
    return checked.error();
  const Result<std::vector<Launch>> launches = lower_plan(*plan, tuned->prepared.training, tuned->prepared.candidates);
  if (!launches) return launches.error();
  const Result<KernelCache> kernels = user_kernel_cache();
  if (!kernels) return kernels.error();
  const std::string folder = options.out.empty() ? concat(stem_of(explore.program.path), ".plan") : options.out;
  if (Result<Done> written = write_plan(*plan, *launches, *kernels, folder); !written) return written.error();

  const Result<LoadedPlan> loaded = read_plan(folder);
  if (!loaded) return loaded.error();
  Result<CpuExecutor> executor = load_executor(*loaded);
  if (!executor) return executor.error();
  const Result<PlanCheck> check = check_plan(*loaded, *executor, kReferenceSeconds);
  if (!check) return check.error();
  const Estimate step = time_step(*loaded, *executor);

  Optimized made;
  made.folder = folder;
  made.operators = tuned->prepared.training.graph.operators.size();
  made.words_before = tuned->prepared.fused.words_before;
  made.words_after = tuned->prepared.fused.words_after;
  made.exploration = tuned->explored.summary;
  made.device = concat(tuned->machine.cpu.model, ", ", tuned->machine.threads, " threads");
  made.checked = check->checked;
  made.worst_error = check->worst;
  made.reference_seconds = check->seconds;
  made.step_seconds = step.median;
  made.step_low = step.low;
  made.step_high = step.high;
  return explore.format == Format::json ? optimize_json(*plan, *selection, made)
                                        : optimize_text(*plan, *selection, made);
}

}  // namespace millrace
