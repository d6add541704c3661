// `millrace explore` and `millrace select`.
#include "base/file.h"
#include "base/text.h"
#include "driver/pipeline.h"
#include "driver/selected_plan.h"
#include "driver/tuning.h"
#include "measure/measurements_json.h"
#include "millrace/millrace.h"
#include "report/exploration_report.h"
#include "report/selection_report.h"

namespace millrace {
namespace {

constexpr int64_t kMeasurementsBytes = int64_t{1} << 30;

Result<Measurements> measurements_of(const SelectOptions& options) {
  const std::string& path = options.explore.program.path;
  if (!path.ends_with(".json")) {
    Phases phases(options.explore.progress, Deadline::never());
    Result<Tuned> tuned = tune(options.explore, Measuring::known, phases);
    if (!tuned) return tuned.error();
    if (tuned->explored.summary.known == 0) {
      return Error::make(ErrorKind::no_configuration, concat("nothing of ", path, " has been measured on this machine"),
                         concat("first run millrace explore ", path, " with the same options"));
    }
    return std::move(tuned->explored.measurements);
  }
  const Result<std::string> text = read_file_or_pipe(path, kMeasurementsBytes);
  if (!text) return text.error();
  return parse_measurements(*text, path);
}

}  // namespace

Result<std::string> explore_program(const ExploreOptions& options) {
  if (options.explain) {
    const Result<Prepared> all = all_candidates(options);
    if (!all) return all.error();
    return candidates_text(all->training.graph, all->candidates, static_cast<size_t>(options.width));
  }
  const Result<Deadline> deadline = deadline_of(options);
  if (!deadline) return deadline.error();
  Phases phases(options.progress, *deadline);
  const Result<Tuned> tuned = tune(options, Measuring::within_budget, phases);
  if (!tuned) return tuned.error();
  phases.begin("writing");
  if (!options.out.empty()) {
    if (Result<Done> written = write_file(options.out, measurements_json(tuned->explored.measurements)); !written)
      return written.error();
  }
  if (options.format == Format::json) return measurements_json(tuned->explored.measurements);
  return exploration_text(tuned->explored.measurements, tuned->explored.summary, static_cast<size_t>(options.width)) +
         (options.out.empty() ? concat("\nnext: millrace select ", options.program.path, " (with the same options)\n")
                              : concat("\nwritten to ", options.out, "; next: millrace select ", options.out, "\n"));
}

Result<std::string> select_program(const SelectOptions& options) {
  const Result<SelectMethod> method = method_named(options.method);
  if (!method) return method.error();
  const Result<Measurements> measurements = measurements_of(options);
  if (!measurements) return measurements.error();
  Stages stages;
  const Result<Selection> selection = select(stages, *measurements, *method, {options.seconds});
  if (!selection) return selection.error();
  if (options.explore.format == Format::json) return selection_json(*measurements, *selection);
  return selection_text(*measurements, *selection, static_cast<size_t>(options.explore.width));
}

}  // namespace millrace
