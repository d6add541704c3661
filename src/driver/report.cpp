// `millrace report`.
#include "driver/report.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/detached.h"
#include "base/file.h"
#include "base/process.h"
#include "base/quote.h"
#include "base/text.h"
#include "driver/baseline.h"
#include "driver/pipeline.h"
#include "driver/plan_folder.h"
#include "driver/selected_plan.h"
#include "millrace/millrace.h"
#include "plan/launched_partition.h"
#include "report/make_report.h"

namespace millrace {
namespace {

std::string method_of(const Selection* selection) {
  if (selection == nullptr) return "";
  if (selection->proven) return "optimal; no selection of these measurements costs less";
  return concat(selection->method == SelectMethod::sssp ? "by the paper's shortest path; " : "", "within ",
                fixed(100 * selection->proven_gap(), 2), " % of the optimum (proven)");
}

// The options that name the program of a plan, for commands that can be pasted.
std::string words_of(const StepPlan& plan) {
  const PlanProgram& program = plan.program;
  std::string words = shell_word(program.file);
  if (!program.entry.empty()) words += concat(" --entry ", shell_word(program.entry));
  if (!program.sizes.empty()) words += concat(" --size ", shell_word(join(program.sizes, ",")));
  if (!program.dtype.empty()) words += concat(" --dtype ", program.dtype);
  for (const auto& [tensor, layout] : program.layouts)
    words += concat(" --layout ", shell_word(concat(tensor, "=", layout)));
  const BackendKind& kind = backend_of(plan);
  return &kind == &host_backend() ? words : concat(words, " --device ", kind.name);
}

Result<Done> make_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0777) == 0 || errno == EEXIST) return Done{};
  return Error::make(ErrorKind::failed, concat("cannot create the folder ", path, ": ", std::strerror(errno)),
                     "choose another folder");
}

Result<Done> write_tables(const Document& document, const std::string& folder) {
  if (Result<Done> made = make_folder(folder); !made) return made;
  for (const Section& section : document.sections) {
    for (const Block& block : section.blocks) {
      if (!block.table) continue;
      if (Result<Done> written = write_own_file(concat(folder, "/", block.table->id, ".csv"), table_csv(*block.table));
          !written)
        return written;
    }
  }
  return Done{};
}

Result<Done> write_pictures(const Document& document, const std::string& folder) {
  if (Result<Done> made = make_folder(folder); !made) return made;
  for (const Section& section : document.sections) {
    for (const Block& block : section.blocks) {
      if (!block.picture) continue;
      if (Result<Done> written =
              write_own_file(concat(folder, "/", block.picture->id, ".svg"), picture_svg(*block.picture));
          !written)
        return written;
    }
  }
  return Done{};
}

Result<Document> document_of_plan(const ReportOptions& options, const std::string& path) {
  const Result<LoadedPlan> loaded = read_plan(path);
  if (!loaded) return loaded.error();
  ExploreOptions explore = options.explore;
  if (explore.threads == 0) explore.threads = threads_of(loaded->plan);
  explore.device = backend_of(loaded->plan).name;
  Phases phases(explore.progress, Deadline::never());
  Result<Tuned> tuned = tune(explore, tune_program(loaded->plan), Measuring::known, phases);
  if (!tuned && tuned.error().kind == ErrorKind::unavailable) {  // the plan's device is not here
    explore.device = host_backend().name;
    tuned = tune(explore, tune_program(loaded->plan), Measuring::known, phases);
  }
  if (!tuned) return tuned.error();
  const bool here = tuned->machine.text() == loaded->plan.device;
  if (!here) tuned->explored = {};
  const Result<TakenTimes> taken = taken_times(loaded->plan, path);
  if (!taken) return taken.error();
  tuned->explored.summary.points = taken->search;
  Result<PlanReport> report = report_of(*tuned, {loaded->plan, path, nullptr, taken->step_seconds, &*taken});
  if (!report) return report.error();
  report->document.next.insert(report->document.next.end(), taken->left_out.begin(), taken->left_out.end());
  if (!here)
    report->document.next.emplace(
        report->document.next.begin(),
        "The plan was made on another machine, or with other libraries or threads: the report shows its times, "
        "but other candidates' times are unknown here.");
  return std::move(report->document);
}

// The sum of the operators' times before optimization; 0 if not all were measured.
double known_seconds_before(const Tuned& tuned) {
  const Result<Baseline> baseline = make_baseline(tuned);
  return baseline && baseline->unmeasured == 0 ? baseline->selected.plan.cost : 0;
}

Result<Document> document_of_program(const ReportOptions& options) {
  const Result<SelectMethod> method = method_named(options.method);
  if (!method) return method.error();
  Phases phases(options.explore.progress, Deadline::never());
  const Result<Tuned> tuned = tune(options.explore, Measuring::known, phases);
  if (!tuned) return tuned.error();
  if (tuned->explored.summary.known == 0)
    return Error::make(ErrorKind::no_configuration,
                       concat("no candidate of ", options.explore.program.path, " has been measured on this machine"),
                       "first run millrace optimize or explore with the same options");
  phases.begin("selecting");
  Result<SelectedPlan> selected = select_plan(*tuned, *method);
  if (!selected) return selected.error();
  phases.begin("reporting");
  selected->plan.default_cost = known_seconds_before(*tuned);
  Result<PlanReport> report = report_of(*tuned, {selected->plan, "", &selected->selection});
  if (!report) return report.error();
  return std::move(report->document);
}

Result<Document> document_of_comparison(const std::vector<std::string>& paths) {
  const Result<LoadedPlan> a = read_plan(paths[0]);
  if (!a) return a.error();
  const Result<LoadedPlan> b = read_plan(paths[1]);
  if (!b) return b.error();
  const Result<TakenTimes> of_a = taken_times(a->plan, paths[0]);
  if (!of_a) return of_a.error();
  const Result<TakenTimes> of_b = taken_times(b->plan, paths[1]);
  if (!of_b) return of_b.error();
  return make_comparison({paths[0], a->plan, of_a->step_seconds, CandidateWords(a->training.graph, a->candidates)},
                         {paths[1], b->plan, of_b->step_seconds, CandidateWords(b->training.graph, b->candidates)});
}

// The report's path: in the plan's folder, where optimize writes it too.
std::string report_file(const ReportOptions& options) {
  constexpr const char* kName = "report.html";
  const std::string& path = options.explore.program.path;
  if (!options.out.empty()) return options.out;
  if (!options.compare.empty() || !is_plan(path)) return kName;
  if (!path.ends_with(".json")) return concat(path, "/", kName);
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? kName : path.substr(0, slash + 1) + kName;
}

Result<Done> open_in_browser(const std::string& file) {
  if (const std::optional<std::string> opener = find_program("xdg-open")) return start_detached({*opener, file});
  return Error::make(ErrorKind::unavailable, concat("nothing opens ", file, ": there is no xdg-open"),
                     "open it in a browser yourself");
}

}  // namespace

namespace {

// The sources of generated kernels; none if the plan cannot be lowered, since the report is still useful without them.
std::vector<std::string> kernel_sources(const Tuned& tuned, const StepPlan& plan) {
  const Result<std::vector<Launch>> launches = lower_plan(plan, tuned.prepared.training, tuned.prepared.candidates);
  std::vector<std::string> sources;
  if (!launches) return sources;
  for (const Launch& launch : *launches) sources.push_back(launch.kernel);
  return sources;
}

// Contractions of the step before that no library computes. Other machines have other libraries.
size_t loops_before(const Tuned& tuned, const StepPlan& plan) {
  if (plan.default_cost <= 0 || tuned.machine.text() != plan.device) return 0;
  const Result<Baseline> baseline = make_baseline(tuned);
  return baseline ? baseline->loops : 0;
}

}  // namespace

Result<PlanReport> report_of(const Tuned& tuned, const ReportedPlan& reported) {
  Stages stages;
  const Result<Analysis> analysis = analyze(stages, tuned.prepared.training, tuned.machine.cpu.last_level_cache);
  if (!analysis) return analysis.error();
  const ReportArtefacts artefacts{tuned.prepared.training,
                                  tuned.prepared.fused,
                                  *analysis,
                                  tuned.prepared.candidates,
                                  tuned.explored.measurements,
                                  tuned.explored.summary,
                                  reported.plan,
                                  reported.folder,
                                  reported.plan.program.file,
                                  method_of(reported.selection),
                                  reported.step_seconds,
                                  tuned.from_cache,
                                  words_of(reported.plan),
                                  kernel_sources(tuned, reported.plan),
                                  reported.taken != nullptr ? reported.taken->launch_seconds : std::vector<double>(),
                                  reported.taken != nullptr ? reported.taken->launch_bytes : std::vector<double>(),
                                  loops_before(tuned, reported.plan)};
  PlanReport report{measure_step(artefacts), {}};
  report.document = make_report(artefacts, report.metrics);
  return report;
}

Result<std::string> report_program(const ReportOptions& options) {
  const std::string& path = options.explore.program.path;
  if (!options.compare.empty() && (options.compare.size() != 2 || !path.empty()))
    return Error::make(ErrorKind::bad_input, "--compare takes two plans and no PROGRAM", "write --compare A B");
  if (options.compare.empty() && path.empty())
    return Error::make(ErrorKind::bad_input, "no plan or program given", "give one, or two plans after --compare");
  const Result<Document> document = !options.compare.empty() ? document_of_comparison(options.compare)
                                    : is_plan(path)          ? document_of_plan(options, path)
                                                             : document_of_program(options);
  if (!document) return document.error();
  if (!options.csv.empty()) {
    if (Result<Done> written = write_tables(*document, options.csv); !written) return written.error();
  }
  if (!options.svg.empty()) {
    if (Result<Done> written = write_pictures(*document, options.svg); !written) return written.error();
  }
  const std::string out = report_file(options);
  const auto write = options.out.empty() ? write_own_file : write_file;
  if (Result<Done> written = write(out, document_html(*document)); !written) return written.error();
  if (options.open) {
    if (Result<Done> opened = open_in_browser(out); !opened) return opened.error();
  }
  if (options.explore.format == Format::json) return document_json(*document);
  return concat(document_text(*document, options.colours), "\nThe report is ", printable_line(out),
                options.csv.empty() ? "" : concat("; its tables are in ", printable_line(options.csv)),
                options.svg.empty() ? "" : concat("; its pictures are in ", printable_line(options.svg)), ".\n");
}

}  // namespace millrace
