// `millrace run`: runs forward and backward once, a program by the reference interpreter, a plan by its launches.
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/quote.h"
#include "base/safetensors.h"
#include "base/significant.h"
#include "base/text.h"
#include "driver/callers_tensors.h"
#include "driver/given_tensors.h"
#include "driver/pipeline.h"
#include "driver/plan_session.h"
#include "millrace/millrace.h"
#include "reference/interpreter.h"
#include "report/table.h"

namespace millrace {
namespace {

struct Summary {
  double largest = 0;
  double mean_magnitude = 0;
  int64_t not_finite = 0;
};

Summary summarize(const std::vector<double>& values) {
  Summary summary;
  for (const double value : values) {
    if (!std::isfinite(value)) {
      ++summary.not_finite;
      continue;
    }
    summary.largest = std::max(summary.largest, std::abs(value));
    summary.mean_magnitude += std::abs(value) / static_cast<double>(values.size());
  }
  return summary;
}

std::string summary_text(const std::vector<StoredTensor>& made, const RunOptions& options) {
  Table table({Align::left, Align::left, Align::right, Align::right, Align::right});
  table.row({"tensor", "shape", "mean |x|", "max |x|", "not finite"});
  for (const StoredTensor& tensor : made) {
    const Summary summary = summarize(tensor.values);
    table.row({tensor.name, shown(tensor.shape), significant(summary.mean_magnitude, 6),
               significant(summary.largest, 6), concat(summary.not_finite)});
  }
  std::string text = table.text(100);
  text += options.out.empty() ? "\nnothing was written; use --out FILE to store the results and gradients\n"
                              : concat("\nwritten to ", printable_line(options.out), "\n");
  return text;
}

std::string summary_json(const std::vector<StoredTensor>& made) {
  nlohmann::ordered_json root = {{"schema_version", 1}, {"tensors", nlohmann::ordered_json::array()}};
  for (const StoredTensor& tensor : made) {
    const Summary summary = summarize(tensor.values);
    root["tensors"].push_back({{"name", tensor.name},
                               {"shape", tensor.shape},
                               {"mean_magnitude", summary.mean_magnitude},
                               {"max_magnitude", summary.largest},
                               {"not_finite", summary.not_finite}});
  }
  return root.dump(2) + "\n";
}

Result<Done> run_by_plan(const LoadedPlan& loaded, const RunOptions& options, Values<double>& values) {
  Result<PlanSession> session = PlanSession::open(loaded);
  if (!session) return session.error();
  if (options.keep_denormals) session->set_denormals(Denormals::keep);
  if (Result<Done> put = session->put(values); !put) return put;
  if (Result<Done> bound = session->bind(options.seed, options.step); !bound) return bound;
  if (Result<Done> ran = session->step(); !ran) return ran;
  return session->take(values);
}

Result<Done> run_by_reference(const Graph& graph, const RunOptions& options, Values<double>& values) {
  constexpr double kLong = 5;
  const double seconds = reference_seconds(graph);
  if (options.notice && seconds > kLong)
    options.notice(concat("the reference is slow: about ", fixed(std::ceil(seconds / 60), 0),
                          " min at these sizes; a plan (millrace optimize) is fast"));
  return interpret(graph, values, {options.seed, options.step});
}

Result<Done> check_device(const RunOptions& options, bool plan) {
  const bool known = static_cast<bool>(backend_named(options.device));
  if (options.device.empty() || options.device == "reference" || (plan && known)) return Done{};
  if (known)
    return Error::make(ErrorKind::bad_input, concat("--device ", options.device, " runs plans, but this is a program"),
                       "use --device reference, or run a plan");
  return Error::make(ErrorKind::bad_input, concat("unknown device '", options.device, "'"),
                     "use --device reference, or for a plan its own device");
}

// A plan runs only on the device that it was made for.
Result<Done> check_device_of(const LoadedPlan& loaded, const std::string& device) {
  const std::string_view own = backend_of(loaded.plan).name;
  if (device.empty() || device == "reference" || device == own) return Done{};
  return Error::make(ErrorKind::bad_input, concat("the plan was made for --device ", own, ", not for ", device),
                     concat("leave out --device, or optimize with --device ", device));
}

Result<LoadedPlan> plan_of(const RunOptions& options) {
  const ProgramSource& program = options.program;
  if (!program.sizes.empty() || !program.dtype.empty() || !program.entry.empty())
    return Error::make(ErrorKind::bad_input, "a plan already has its sizes, type and entry",
                       "leave out --size, --dtype and --entry");
  return read_plan(program.path);
}

}  // namespace

Result<std::string> run_program(const RunOptions& options) {
  const bool plan = is_plan(options.program.path);
  if (Result<Done> there = check_device(options, plan); !there) return there.error();
  std::optional<LoadedPlan> loaded;
  if (plan) {
    Result<LoadedPlan> read = plan_of(options);
    if (!read) return read.error();
    if (Result<Done> fits = check_device_of(*read, options.device); !fits) return fits.error();
    loaded = std::move(*read);
  }
  Stages stages;
  const Result<TrainingGraph> training = loaded ? loaded->training : train(stages, options.program);
  if (!training) return training.error();
  if (Result<Done> distinct = check_names(*training); !distinct) return distinct.error();
  const bool by_plan = plan && options.device != "reference";
  if (!by_plan) {
    if (Result<Done> fits = check_memory(training->graph); !fits) return fits.error();
  }
  Result<Values<double>> given = take_given(*training, options.in, options.seed);
  if (!given) return given.error();
  Values<double> values = std::move(*given);
  if (Result<Done> ran =
          by_plan ? run_by_plan(*loaded, options, values) : run_by_reference(training->graph, options, values);
      !ran)
    return ran.error();

  std::vector<StoredTensor> made;
  for (const auto& [name, tensor] : made_tensors(*training))
    made.push_back({name, StoredType::f64, shape_of(training->graph, tensor), values[tensor.at()]});
  if (!options.out.empty()) {
    if (Result<Done> written = write_file(options.out, serialize_safetensors(made)); !written) return written.error();
  }
  return options.format == Format::json ? summary_json(made) : summary_text(made, options);
}

}  // namespace millrace
