#include "driver/finish.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "device/cpu/machine_load.h"
#include "driver/finish_time.h"
#include "driver/given_tensors.h"
#include "driver/plan_folder.h"
#include "driver/plan_session.h"
#include "driver/slow_step.h"
#include "driver/staged_folder.h"
#include "driver/step_times.h"

namespace millrace {
namespace {

constexpr double kLeastLeft = 0.6;    // seconds, for parts that take a moment, also after the deadline
constexpr double kMostChecking = 20;  // seconds
constexpr double kMostTiming = 4;     // of both steps together
constexpr double kClockSeconds = 2;   // that reading a GPU's clock may take
constexpr double kShareToOpen = 0.7;  // of what is left, for opening a plan and timing its steps
constexpr double kShareOfRest = 0.4;  // for timing, and for checking
constexpr double kStepsToTime = 3;    // at least: two that warm up and one
constexpr double kTooOptimistic = 4;  // how much longer than estimated a check may take
constexpr const char* kNoTime = "not measured (budget)";

// The whole plan in memory, as read_plan makes it.
LoadedPlan loaded(const StepPlan& plan, const Prepared& prepared, const std::string& folder) {
  LoadedPlan made{plan, folder.empty() ? "" : concat(folder, "/plan.json"), prepared.training, {}};
  const Candidates& candidates = prepared.candidates;
  made.candidates = {candidates.domains,
                     {},
                     candidates.choice_points,
                     candidates.contiguous_groups,
                     candidates.callers_contiguous_groups,
                     {}};
  for (const PartitionCandidates& entry : candidates.partitions)
    made.candidates.partitions.push_back({entry.partition, 0, {}, {}});
  return made;
}

class Finisher {
 public:
  Finisher(const Tuned& tuned, const std::string& examples, Phases& phases)
      : tuned_(tuned),
        examples_(examples),
        phases_(phases),
        end_(phases.deadline().later_by(grace_seconds(tuned.budget))) {}

  Result<FinishedPlan> run(SelectMethod method, std::string folder) {
    made_.folder = std::move(folder);
    phases_.begin("selecting");
    Result<SelectedPlan> selected = select_plan(tuned_, method, {select_seconds(tuned_.budget)});
    if (!selected) return selected.error();
    made_.selected = std::move(*selected);
    made_.selected_cost = made_.selected.selection.cost;
    made_.unchecked = unchecked_launches();
    made_.replaced = is_plan(made_.folder);
    Result<StagedFolder> staged = StagedFolder::make(made_.folder);
    if (!staged) return staged.error();
    stage_ = staged->path();
    if (Result<Done> written = write(tuned_.prepared); !written) return written.error();
    phases_.begin("timing");
    if (Result<Done> timed = compare(); !timed) return timed.error();
    phases_.begin("checking");
    if (Result<Done> checked = check(); !checked) return not_written(checked.error());
    if (Result<Done> kept = staged->keep(); !kept) return kept.error();
    return std::move(made_);
  }

 private:
  Result<Done> write(const Prepared& prepared) {
    phases_.begin("compiling the plan");
    return write_lowered(prepared, tuned_.machine, made_.selected.plan, stage_);
  }

  Error not_written(Error error) const {
    error.diagnostics.front().message += concat("; no plan was written to '", made_.folder, "'");
    return error;
  }

  size_t unchecked_launches() const {
    size_t count = 0;
    for (const SelectedPartition& selected : made_.selected.selection.partitions) {
      const MeasuredPartition& partition = tuned_.explored.measurements.partitions[as_index(selected.partition)];
      count += is_measured(partition.candidates[as_index(selected.candidate)]) ? 0 : 1;
    }
    return count;
  }

  // --- The selected plan and the step before optimization, side by side ---

  Result<Done> compare() {
    const LoadedPlan selected = loaded(made_.selected.plan, tuned_.prepared, stage_);
    Result<PlanSession> session = PlanSession::open(selected);
    if (!session) return session.error();
    made_.device = session->device();
    if (!fits(made_.selected.plan.cost, draw_seconds(tuned_.prepared.training.graph, tuned_.machine)))
      return not_timed(kNoTime);
    if (Result<Done> put = put_inputs(tuned_.prepared, *session); !put) return put;
    if (!fits(made_.selected.plan.cost, tuned_.prepare_seconds)) {
      made_.not_timed = kNoTime;
      return time({&*session});
    }
    Result<Baseline> baseline = make_baseline(tuned_);
    if (!baseline) {
      made_.not_timed = concat("not measured: ", baseline.error().diagnostics.front().message);
      return time({&*session});
    }
    made_.loops_before = baseline->loops;
    if (!fits(baseline->selected.plan.cost + made_.selected.plan.cost, seconds_to_open(*baseline))) {
      made_.not_timed = kNoTime;
      return time({&*session});
    }
    return compare(*session, std::move(*baseline));
  }

  Result<Done> put_inputs(const Prepared& prepared, PlanSession& session) const {
    const Result<Values<double>> given = take_given(prepared.training, examples_, kTimingSeed);
    return given ? session.put(*given) : Result<Done>(given.error());
  }

  // Kernels that were measured are in the cache.
  double seconds_to_open(const Baseline& baseline) const {
    return compile_seconds(static_cast<double>(baseline.unmeasured), tuned_.machine) +
           draw_seconds(baseline.prepared.training.graph, tuned_.machine);
  }

  double left() const { return std::max(kLeastLeft, end_.left()); }

  // Whether there is time for this many steps after some other work.
  bool fits(double step, double other) const { return kStepsToTime * step + other < kShareToOpen * left(); }

  Result<Done> not_timed(std::string why) {
    made_.not_timed = std::move(why);
    return Done{};
  }

  Result<Done> compare(PlanSession& session, Baseline baseline) {
    const LoadedPlan unfused = loaded(baseline.selected.plan, baseline.prepared, "");
    Result<PlanSession> before = PlanSession::open(unfused);
    if (!before) return before.error();
    if (Result<Done> put = put_inputs(baseline.prepared, *before); !put) return put;
    if (Result<Done> timed = time({&session, &*before}); !timed) return timed;
    if (!made_.before) return Done{};
    made_.selected.plan.default_cost = baseline.selected.plan.default_cost = made_.before->median;
    return made_.before->median < made_.after->median ? keep(std::move(baseline))
                                                      : rewrite_plan(made_.selected.plan, stage_);
  }

  Result<Done> time(const std::vector<PlanSession*>& sessions) {
    const LoadMeter meter;
    const double seconds = std::min(kMostTiming, kShareOfRest * left());
    const Result<std::optional<std::vector<Estimate>>> times = time_steps(sessions, Deadline::after(seconds));
    if (!times) return times.error();
    if (!*times) return not_timed(kNoTime);
    made_.after = (**times)[0];
    if (sessions.size() > 1) made_.before = (**times)[1];
    if (!tuned_.machine.target().own_memory)
      made_.disturbance = disturbance(meter.others_cores(), tuned_.machine.threads);
    if (Result<Done> examined = examine(*sessions.front()); !examined) return examined;
    return read_clock(*sessions.front());
  }

  Result<Done> examine(PlanSession& session) {
    const bool slow = made_.after->median > kFarSlowerThanPredicted * made_.selected.plan.cost;
    if (!slow || tuned_.machine.target().own_memory) return Done{};
    if (!has_time_to_examine(made_.after->median, end_.left())) return Done{};
    const Result<SlowStep> found = examine_slow_step(session, loaded(made_.selected.plan, tuned_.prepared, stage_));
    if (!found) return found.error();
    made_.why_slow = explained(*found);
    return Done{};
  }

  Result<Done> read_clock(PlanSession& session) {
    if (!tuned_.machine.target().own_memory || end_.left() < kClockSeconds) return Done{};
    const Result<GpuClock> clock = gpu_clock(session);
    if (!clock) return clock.error();
    made_.relative_clock = clock->relative;
    made_.idle_gapped = clock->idle_gapped;
    return Done{};
  }

  // Writes the plan of the step before optimization in place of the selected one.
  Result<Done> keep(Baseline baseline) {
    made_.selected = std::move(baseline.selected);
    made_.unchecked = baseline.unmeasured;
    made_.kept = std::move(baseline);
    return write(made_.kept->prepared);
  }

  // --- The check ---

  Result<Done> check() {
    const Prepared& prepared = made_.kept ? made_.kept->prepared : tuned_.prepared;
    const LoadedPlan plan = loaded(made_.selected.plan, prepared, stage_);
    Result<PlanSession> session = PlanSession::open(plan);
    if (!session) return session.error();
    const double most = std::min(kMostChecking, left() / kTooOptimistic);
    const Result<PlanCheck> checked = check_plan(plan, *session, most, examples_);
    if (!checked) return checked.error();
    made_.check = *checked;
    return Done{};
  }

  const Tuned& tuned_;
  const std::string& examples_;
  Phases& phases_;
  const Deadline end_;  // of parts that the plan does not need
  std::string stage_;   // where the plan is until it is checked
  FinishedPlan made_;
};

}  // namespace

Result<FinishedPlan> finish(const Tuned& tuned, SelectMethod method, std::string folder, const std::string& examples,
                            Phases& phases) {
  return Finisher(tuned, examples, phases).run(method, std::move(folder));
}

}  // namespace millrace
