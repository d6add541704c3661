// `millrace optimize`: program to plan, checked and timed.
#include <filesystem>
#include <optional>

#include "base/file.h"
#include "base/text.h"
#include "driver/finish.h"
#include "driver/finish_time.h"
#include "driver/given_tensors.h"
#include "driver/pipeline.h"
#include "driver/report.h"
#include "driver/taken_times.h"
#include "driver/tuning.h"
#include "driver/warned_program.h"
#include "millrace/millrace.h"
#include "report/optimize_report.h"

namespace millrace {
namespace {

std::string stem_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name.ends_with(".py")) name.resize(name.size() - 3);
  return name;
}

std::string folder_of(const OptimizeOptions& options) {
  return options.out.empty() ? concat(stem_of(options.explore.program.path), ".plan") : options.out;
}

std::optional<StepSeconds> seconds_shown(const std::optional<Estimate>& time) {
  if (!time) return std::nullopt;
  return StepSeconds{time->median, time->low, time->high};
}

// What the report says of the plan that is kept.
Optimized described(const Tuned& tuned, const FinishedPlan& finished) {
  Optimized made;
  const TrainingGraph& training = tuned.prepared.training;
  made.folder = finished.folder;
  made.replaced = finished.replaced;
  made.repeated = training.repeated.size();
  made.predicates = training.predicates.size();
  made.operators = training.graph.operators.size() - made.repeated - made.predicates - training.statistics.size();
  made.exploration = tuned.explored.summary;
  made.device = finished.device;
  made.checked = finished.check.checked;
  made.worst_error = finished.check.worst;
  made.reference_seconds = finished.check.seconds;
  made.check_limit = finished.check.limit;
  made.not_finite = finished.check.not_finite;
  made.unchecked = finished.unchecked;
  made.before = seconds_shown(finished.before);
  made.step = seconds_shown(finished.after);
  made.loops_before = finished.loops_before;
  made.not_timed = finished.not_timed;
  made.disturbance = finished.disturbance;
  made.why_slow = finished.why_slow;
  made.baseline_kept = finished.kept.has_value();
  made.relative_clock = finished.relative_clock;
  if (finished.idle_gapped) {
    made.idle_gapped_seconds = finished.idle_gapped->step.median;
    made.idle_gapped_clock = finished.idle_gapped->relative_clock;
  }
  return made;
}

// Whether the file of inputs fits the program, before anything takes long.
Result<Done> check_examples(const OptimizeOptions& options) {
  if (options.in.empty()) return Done{};
  Stages stages;
  const Result<TrainingGraph> training = train(stages, options.explore.program);
  if (!training) return training.error();
  const Result<Values<double>> given = take_given(*training, options.in, 0);
  return given ? Result<Done>(Done{}) : Result<Done>(given.error());
}

// If the step before optimization is the plan, the report shows the unfused program: the measurements belong to the
// fused one.
void show_kept(Tuned& tuned, FinishedPlan& finished) {
  if (!finished.kept) return;
  tuned.prepared = std::move(finished.kept->prepared);
  tuned.explored.measurements = {};
}

// For later reports of the plan.
Result<Done> write_search(const Tuned& tuned, const FinishedPlan& finished) {
  return write_own_file(concat(finished.folder, "/", kSearchFile),
                        search_json(finished.plan(), tuned.explored.summary.points));
}

Result<Done> write_times(const FinishedPlan& finished) {
  const std::string file = concat(finished.folder, "/", kTimesFile);
  const std::optional<Estimate>& time = finished.kept ? finished.before : finished.after;
  if (time) return write_own_file(file, step_times_json(finished.plan(), time->median, time->low, time->high));
  std::error_code ignored;  // of an earlier plan
  std::filesystem::remove(file, ignored);
  return Done{};
}

Result<Done> write_report(Tuned& tuned, FinishedPlan& finished, Optimized& made) {
  show_kept(tuned, finished);
  const double step = finished.kept ? finished.before->median : finished.after ? finished.after->median : 0;
  const Result<PlanReport> report =
      report_of(tuned, {finished.plan(), finished.folder, &finished.selected.selection, step});
  if (!report) return report.error();
  made.words_before = static_cast<int64_t>(report->metrics.words_before);
  made.words_after = static_cast<int64_t>(report->metrics.words_after);
  made.report = concat(finished.folder, "/report.html");
  if (Result<Done> written = write_times(finished); !written) return written;
  if (Result<Done> written = write_search(tuned, finished); !written) return written;
  return write_own_file(made.report, document_html(report->document));
}

}  // namespace

Result<std::string> plan_program(const OptimizeOptions& options) {
  const Result<SelectMethod> method = method_named(options.method);
  if (!method) return method.error();
  Phases phases(options.explore.progress, Deadline::never());
  const Result<Tuned> tuned = tune(options.explore, Measuring::assumed, phases);
  if (!tuned) return tuned.error();
  Result<SelectedPlan> selected = select_plan(*tuned, *method);
  if (!selected) return selected.error();
  const std::string folder = folder_of(options);
  const Result<Done> written = write_lowered(tuned->prepared, tuned->machine, selected->plan, folder);
  if (!written) return written.error();
  return folder;
}

Result<std::string> optimize_program(const OptimizeOptions& options) {
  const WarnedProgram program(options.explore.program);
  ExploreOptions explore = options.explore;
  explore.program = program.source;
  const Result<SelectMethod> method = method_named(options.method);
  if (!method) return method.error();
  const Result<Deadline> deadline = deadline_of(explore);
  if (!deadline) return deadline.error();
  if (Result<Done> fits = check_examples(options); !fits) return fits.error();
  Phases phases(explore.progress, *deadline);
  Result<Tuned> tuned = tune(explore, Measuring::within_budget, phases, finish_time);
  if (!tuned) return tuned.error();
  Result<FinishedPlan> finished = finish(*tuned, *method, folder_of(options), options.in, phases);
  if (!finished) return finished.error();
  if (std::vector<ExplorationPoint>& points = tuned->explored.summary.points; !points.empty())
    points.back().step = finished->selected_cost;
  Optimized made = described(*tuned, *finished);
  made.warnings = *program.warnings;
  phases.begin("writing the report");
  if (Result<Done> written = write_report(*tuned, *finished, made); !written) return written.error();
  return explore.format == Format::json ? optimize_json(finished->plan(), finished->selected.selection, made)
                                        : optimize_text(finished->plan(), finished->selected.selection, made);
}

}  // namespace millrace
