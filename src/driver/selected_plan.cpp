#include "driver/selected_plan.h"

#include "base/text.h"
#include "driver/pipeline.h"
#include "driver/plan_folder.h"
#include "plan/launched_partition.h"

namespace millrace {
namespace {

Result<StepPlan> plan_selection(Stages& stages, const Tuned& tuned, const Selection& selection) {
  return build_plan(stages, tuned.prepared.training, tuned.prepared.candidates, tuned.explored.measurements, selection,
                    plan_options(tuned.program, tuned.machine));
}

}  // namespace

PlanOptions plan_options(const TuneProgram& program, const Machine& machine) {
  PlanOptions planning;
  planning.program = {program.source.path,  program.text,    program.source.entry, program.source.sizes,
                      program.source.dtype, program.layouts, program.fusing};
  planning.version = version();
  planning.device = machine.text();
  planning.date = utc_now();
  planning.scratch_bytes = [&machine](const Launch& launch) { return machine.backend->scratch_bytes(launch); };
  return planning;
}

bool is_measured(const MeasuredCandidate& candidate) { return candidate.low > 0; }

Result<SelectMethod> method_named(const std::string& name) {
  if (name == "exact") return SelectMethod::exact;
  if (name == "sssp") return SelectMethod::sssp;
  return Error::make(ErrorKind::bad_input, concat("--method ", name, ": unknown method"), "use exact or sssp");
}

Result<Done> write_lowered(const Prepared& prepared, const Machine& machine, StepPlan& plan,
                           const std::string& folder) {
  const Result<std::vector<Launch>> launches = lower_plan(plan, prepared.training, prepared.candidates);
  if (!launches) return launches.error();
  return write_plan(*machine.backend, plan, *launches, folder);
}

Result<SelectedPlan> select_plan(const Tuned& tuned, SelectMethod method, const SelectLimits& limits) {
  const Measurements& measurements = tuned.explored.measurements;
  Stages stages;
  Result<Selection> selection = select(stages, measurements, method, limits);
  if (!selection) return selection.error();
  Result<StepPlan> plan = plan_selection(stages, tuned, *selection);
  if (!plan) return plan.error();
  return SelectedPlan{std::move(*selection), std::move(*plan)};
}

}  // namespace millrace
