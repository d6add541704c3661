#include "driver/selected_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "driver/pipeline.h"
#include "report/metrics.h"

namespace millrace {
namespace {

// The step before optimization: every operator by itself, tensors in the program's layouts. 0 if one was not measured.
double unfused_seconds(const Prepared& prepared, const Measurements& measurements) {
  std::map<std::string, const MeasuredPartition*> measured;
  for (const MeasuredPartition& partition : measurements.partitions) measured[partition.name] = &partition;
  double total = 0;
  const TrainingGraph& training = prepared.training;
  std::set<OperatorId> added(training.repeated.begin(), training.repeated.end());
  added.insert(training.predicates.begin(), training.predicates.end());
  for (const PartitionCandidates& entry : prepared.candidates.partitions) {
    if (entry.partition.operators.size() != 1) continue;
    if (added.contains(entry.partition.operators[0])) continue;
    const auto found = measured.find(entry.partition.name);
    if (found == measured.end()) return 0;
    const std::optional<double> seconds = seconds_as_written(measurements, *found->second);
    if (!seconds) return 0;
    total += *seconds;
  }
  return total;
}

Result<StepPlan> plan_selection(Stages& stages, const Tuned& tuned, const Selection& selection) {
  const Measurements& measurements = tuned.explored.measurements;
  PlanOptions planning;
  const TuneProgram& program = tuned.program;
  planning.program = {program.source.path,  program.text,         program.source.entry,
                      program.source.sizes, program.source.dtype, program.layouts};
  planning.version = version();
  planning.device = tuned.machine.text();
  planning.date = utc_now();
  planning.default_cost = unfused_seconds(tuned.prepared, measurements);
  planning.scratch_bytes = [&](const Launch& launch) { return tuned.machine.backend->scratch_bytes(launch); };
  return build_plan(stages, tuned.prepared.training, tuned.prepared.candidates, measurements, selection, planning);
}

}  // namespace

Result<SelectMethod> method_named(const std::string& name) {
  if (name == "exact") return SelectMethod::exact;
  if (name == "sssp") return SelectMethod::sssp;
  return Error::make(ErrorKind::bad_input, concat("--method ", name, ": unknown method"), "use exact or sssp");
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
