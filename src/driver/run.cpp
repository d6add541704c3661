// `millrace run`: a program's forward and backward once, by the reference interpreter.
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "driver/stages.h"
#include "millrace/millrace.h"
#include "reference/interpreter.h"
#include "reference/philox.h"
#include "report/table.h"

namespace millrace {
namespace {

std::vector<int64_t> shape_of(const Graph& graph, TensorId tensor) {
  std::vector<int64_t> shape;
  for (const DimId dim : graph.tensor(tensor).dims) shape.push_back(graph.extent(dim));
  return shape;
}

std::string shown(const std::vector<int64_t>& shape) { return concat("[", join(shape, ", "), "]"); }

// A tensor that the caller gives, under the name that it has in a file.
struct Given {
  std::string name;
  TensorId tensor;
  bool required = false;  // in a file; a result's gradient may be drawn
};

std::vector<Given> given_tensors(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  std::vector<Given> given;
  for (const TensorId argument : graph.arguments) given.push_back({graph.tensor(argument).name, argument, true});
  for (size_t k = 0; k < graph.results.size(); ++k)
    given.push_back({concat("d_", graph.results[k].name), training.result_gradients[k], false});
  return given;
}

// A file's names must tell arguments from gradients: an argument `x` beside a result `d_x` would not.
Result<Done> check_names(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  std::set<std::string> in;
  std::set<std::string> out;
  for (const Given& given : given_tensors(training)) {
    if (!in.insert(given.name).second)
      return Error::make(ErrorKind::bad_input, concat("'", given.name, "' is an argument and a result's gradient"),
                         "rename one in the program");
  }
  for (const Output& result : graph.results) out.insert(result.name);
  for (const TensorId argument : graph.arguments) {
    const std::string name = concat("d_", graph.tensor(argument).name);
    if (!out.insert(name).second)
      return Error::make(ErrorKind::bad_input, concat("'", name, "' is a result and an argument's gradient"),
                         "rename one in the program");
  }
  return Done{};
}

// Fills `values` from the file's tensors; complains about all that do not fit at once.
Result<Done> take_from_file(const std::string& path, const Graph& graph, const std::vector<Given>& given,
                            Values<double>& values) {
  Result<std::vector<StoredTensor>> stored = read_safetensors(path);
  if (!stored) return stored.error();
  std::map<std::string, StoredTensor*> by_name;
  for (StoredTensor& tensor : *stored) by_name.emplace(tensor.name, &tensor);
  Error error{ErrorKind::bad_input, {}};
  const auto complain = [&](const std::string& message, const std::string& remedy) {
    Diagnostic diagnostic;
    diagnostic.file = path;
    diagnostic.message = message;
    diagnostic.remedy = remedy;
    error.diagnostics.push_back(diagnostic);
  };
  for (const Given& wanted : given) {
    const auto found = by_name.find(wanted.name);
    const std::vector<int64_t> shape = shape_of(graph, wanted.tensor);
    if (found == by_name.end()) {
      if (wanted.required)
        complain(concat("argument '", wanted.name, "' is missing"), concat("its shape is ", shown(shape)));
      continue;
    }
    if (found->second->shape != shape) {
      complain(concat("'", wanted.name, "' has shape ", shown(found->second->shape)),
               concat("the program wants ", shown(shape)));
    } else {
      values[wanted.tensor.at()] = std::move(found->second->values);
    }
    by_name.erase(found);
  }
  std::vector<std::string> names;
  for (const Given& wanted : given) names.push_back(wanted.name);
  for (const auto& [name, tensor] : by_name)
    complain(concat("the program has no argument '", name, "'"), concat("it takes ", join(names, ", ")));
  if (!error.diagnostics.empty()) return error;
  return Done{};
}

void draw_missing(const Graph& graph, const std::vector<Given>& given, uint64_t seed, Values<double>& values) {
  for (size_t k = 0; k < given.size(); ++k) {
    std::vector<double>& elements = values[given[k].tensor.at()];
    if (!elements.empty()) continue;
    elements.resize(static_cast<size_t>(elements_of(graph, given[k].tensor)));
    for (size_t e = 0; e < elements.size(); ++e) elements[e] = uniform_draw(seed, static_cast<uint32_t>(k), e);
  }
}

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
    std::array<char, 32> mean{};
    std::array<char, 32> largest{};
    std::snprintf(mean.data(), mean.size(), "%.6g", summary.mean_magnitude);
    std::snprintf(largest.data(), largest.size(), "%.6g", summary.largest);
    table.row({tensor.name, shown(tensor.shape), mean.data(), largest.data(), concat(summary.not_finite)});
  }
  std::string text = table.text(100);
  text += options.out.empty() ? "\nnothing was written; --out FILE keeps the results and gradients\n"
                              : concat("\nwritten to ", options.out, "\n");
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

}  // namespace

Result<std::string> run_program(const RunOptions& options) {
  if (options.device != "reference") {
    return Error::make(ErrorKind::unavailable, concat("device '", options.device, "' is not there"),
                       "this version runs on --device reference");
  }
  Stages stages(nullptr);
  const Result<TrainingGraph> training = stages.train(options.program);
  if (!training) return training.error();
  if (Result<Done> fits = check_memory(training->graph); !fits) return fits.error();

  if (Result<Done> distinct = check_names(*training); !distinct) return distinct.error();
  Values<double> values(training->graph.tensors.size());
  const std::vector<Given> given = given_tensors(*training);
  if (!options.in.empty()) {
    if (Result<Done> taken = take_from_file(options.in, training->graph, given, values); !taken) return taken.error();
  }
  draw_missing(training->graph, given, options.seed, values);
  if (Result<Done> ran = interpret(training->graph, values, {options.seed, options.step}); !ran) return ran.error();

  std::vector<StoredTensor> made;
  const auto keep = [&](const std::string& name, TensorId tensor) {
    made.push_back({name, StoredType::f64, shape_of(training->graph, tensor), std::move(values[tensor.at()])});
  };
  for (const Output& result : training->graph.results) keep(result.name, result.tensor);
  for (size_t k = 0; k < training->graph.arguments.size(); ++k) {
    const TensorId gradient = training->argument_gradients[k];
    if (gradient.valid()) keep(concat("d_", training->graph.tensor(training->graph.arguments[k]).name), gradient);
  }
  if (!options.out.empty()) {
    if (Result<Done> written = write_file(options.out, serialize_safetensors(made)); !written) return written.error();
  }
  return options.format == Format::json ? summary_json(made) : summary_text(made, options);
}

}  // namespace millrace
