// `millrace optimize`: program to plan, checked and timed.
#include <optional>

#include "base/file.h"
#include "base/text.h"
#include "driver/check_plan.h"
#include "driver/given_tensors.h"
#include "driver/plan_session.h"
#include "driver/report.h"
#include "driver/selected_plan.h"
#include "driver/time_plan.h"
#include "driver/tuning.h"
#include "millrace/millrace.h"
#include "plan/launched_partition.h"
#include "report/exploration_report.h"
#include "report/optimize_report.h"

namespace millrace {
namespace {

constexpr double kReferenceSeconds = 20;  // limit for checking the whole plan
constexpr double kStepSeconds = 2;        // for timing the step

std::string stem_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name.ends_with(".py")) name.resize(name.size() - 3);
  return name;
}

// The selected plan, written to its folder.
struct WrittenPlan {
  SelectedPlan selected;
  std::string folder;
};

Result<Done> write_to(const Tuned& tuned, StepPlan& plan, const std::string& folder) {
  const Result<std::vector<Launch>> launches = lower_plan(plan, tuned.prepared.training, tuned.prepared.candidates);
  if (!launches) return launches.error();
  return write_plan(*tuned.machine.backend, plan, *launches, folder);
}

Result<WrittenPlan> write_best(const Tuned& tuned, const OptimizeOptions& options) {
  const Result<SelectMethod> method = method_named(options.method);
  if (!method) return method.error();
  Result<SelectedPlan> selected = select_plan(tuned, *method);
  if (!selected) return selected.error();
  const std::string& path = options.explore.program.path;
  std::string folder = options.out.empty() ? concat(stem_of(path), ".plan") : options.out;
  if (Result<Done> written = write_to(tuned, selected->plan, folder); !written) return written.error();
  return WrittenPlan{std::move(*selected), std::move(folder)};
}

// A written plan, checked and then timed.
struct TriedPlan {
  PlanCheck check;
  PassTimes times;
  std::string device;  // as PlanSession::device
};

Result<TriedPlan> try_written(const std::string& folder) {
  const Result<LoadedPlan> loaded = read_plan(folder);
  if (!loaded) return loaded.error();
  Result<PlanSession> session = PlanSession::open(*loaded);
  if (!session) return session.error();
  const Result<PlanCheck> check = check_plan(*loaded, *session, kReferenceSeconds);
  if (!check) return check.error();
  if (Result<Done> put = session->put(draw_given(loaded->training, kTimingSeed)); !put) return put.error();
  const Result<PassTimes> times = time_passes(*session, kStepSeconds);
  if (!times) return times.error();
  return TriedPlan{*check, *times, session->device()};
}

}  // namespace

Result<std::string> plan_program(const OptimizeOptions& options) {
  const Result<Tuned> tuned = tune(options.explore, Measuring::assumed);
  if (!tuned) return tuned.error();
  const Result<WrittenPlan> written = write_best(*tuned, options);
  if (!written) return written.error();
  return written->folder;
}

Result<std::string> optimize_program(const OptimizeOptions& options) {
  const ExploreOptions& explore = options.explore;
  if (const Result<SelectMethod> method = method_named(options.method); !method) return method.error();
  const Result<Tuned> tuned = tune(explore, Measuring::within_budget);
  if (!tuned) return tuned.error();
  const Result<WrittenPlan> best = write_best(*tuned, options);
  if (!best) return best.error();
  const Result<TriedPlan> tried = try_written(best->folder);
  if (!tried) return tried.error();
  const StepPlan& plan = best->selected.plan;
  const std::string& folder = best->folder;
  const auto& [check, times, device] = *tried;
  const Estimate& step = times.step;

  Optimized made;
  made.folder = folder;
  const TrainingGraph& training = tuned->prepared.training;
  made.repeated = training.repeated.size();
  made.predicates = training.predicates.size();
  made.operators = training.graph.operators.size() - made.repeated - made.predicates - training.statistics.size();
  made.exploration = tuned->explored.summary;
  made.device = device;
  made.checked = check.checked;
  made.worst_error = check.worst;
  made.reference_seconds = check.seconds;
  made.step_seconds = step.median;
  made.step_low = step.low;
  made.step_high = step.high;
  made.relative_clock = times.relative_clock;
  if (times.idle_gapped) {
    made.idle_gapped_seconds = times.idle_gapped->step.median;
    made.idle_gapped_clock = times.idle_gapped->relative_clock;
  }
  const Result<PlanReport> report = report_of(*tuned, {plan, folder, &best->selected.selection, step.median});
  if (!report) return report.error();
  made.words_before = static_cast<int64_t>(report->metrics.words_before);
  made.words_after = static_cast<int64_t>(report->metrics.words_after);
  made.report = concat(folder, "/report.html");
  if (Result<Done> written = write_file(made.report, document_html(report->document)); !written) return written.error();
  return explore.format == Format::json ? optimize_json(plan, best->selected.selection, made)
                                        : optimize_text(plan, best->selected.selection, made);
}

}  // namespace millrace
