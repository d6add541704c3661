// `millrace explore`, `millrace select` and `millrace db show`.
#include <optional>

#include "base/file.h"
#include "base/quote.h"
#include "base/text.h"
#include "driver/file_kind.h"
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

// Measurements, and the program if they are not from a file.
struct Measured {
  Measurements measurements;
  std::optional<Prepared> program;
};

Result<Tuned> known_of(const ExploreOptions& options);

Result<Measured> measurements_of(const SelectOptions& options) {
  const std::string& path = options.explore.program.path;
  if (!path.ends_with(".json")) {
    Result<Tuned> tuned = known_of(options.explore);
    if (!tuned) return tuned.error();
    return Measured{std::move(tuned->explored.measurements), std::move(tuned->prepared)};
  }
  const Result<std::string> text = read_file_or_pipe(path, kMeasurementsBytes);
  if (!text) return text.error();
  if (Result<Done> right = check_kind(path, *text, FileKind::measurements); !right) return right.error();
  Result<Measurements> measurements = parse_measurements(*text, path);
  if (!measurements) return measurements.error();
  return Measured{std::move(*measurements), std::nullopt};
}

std::string next_line(const ExploreOptions& options) {
  if (options.out.empty())
    return concat("\nnext: millrace select ", shell_word(options.program.path), " (with the same options)\n");
  return concat("\nwritten to ", printable_line(options.out), "; next: millrace select ", shell_word(options.out),
                "\n");
}

std::string measured_text(const ExploreOptions& options, const Tuned& tuned) {
  const CandidateWords words(tuned.prepared.training.graph, tuned.prepared.candidates);
  return exploration_text(tuned.explored.measurements, tuned.explored.summary, words,
                          static_cast<size_t>(options.width));
}

Result<Tuned> known_of(const ExploreOptions& options) {
  Phases phases(options.progress, Deadline::never());
  Result<Tuned> tuned = tune(options, Measuring::known, phases);
  if (!tuned || tuned->explored.summary.known > 0) return tuned;
  return Error::make(ErrorKind::no_configuration,
                     concat("no candidate of ", options.program.path, " has been measured on this machine"),
                     concat("first run millrace explore ", shell_word(options.program.path), " with the same options"));
}

}  // namespace

Result<std::string> explore_program(const ExploreOptions& options) {
  if (options.explain) {
    const Result<Prepared> all = all_candidates(options);
    if (!all) return all.error();
    if (options.format == Format::json) return candidates_json(all->training.graph, all->candidates);
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
  return measured_text(options, *tuned) + next_line(options);
}

Result<std::string> show_measurements(const ExploreOptions& options) {
  const Result<Tuned> tuned = known_of(options);
  if (!tuned) return tuned.error();
  return options.format == Format::json ? measurements_json(tuned->explored.measurements)
                                        : measured_text(options, *tuned);
}

Result<std::string> select_program(const SelectOptions& options) {
  const Result<SelectMethod> method = method_named(options.method);
  if (!method) return method.error();
  const Result<Measured> measured = measurements_of(options);
  if (!measured) return measured.error();
  const Measurements& measurements = measured->measurements;
  Stages stages;
  const Result<Selection> selection = select(stages, measurements, *method, {options.seconds});
  if (!selection) return selection.error();
  if (options.explore.format == Format::json) return selection_json(measurements, *selection);
  const CandidateWords words = measured->program
                                   ? CandidateWords(measured->program->training.graph, measured->program->candidates)
                                   : CandidateWords();
  return selection_text(measurements, *selection, static_cast<size_t>(options.explore.width), words);
}

}  // namespace millrace
