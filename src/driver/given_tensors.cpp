#include "driver/given_tensors.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/parallel.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "driver/check_ids.h"
#include "reference/draw_rules.h"
#include "reference/philox.h"

namespace millrace {

std::vector<int64_t> shape_of(const Graph& graph, TensorId tensor) {
  std::vector<int64_t> shape;
  for (const DimId dim : graph.tensor(tensor).dims) shape.push_back(graph.extent(dim));
  return shape;
}

std::string shown(const std::vector<int64_t>& shape) { return concat("[", join(shape, ", "), "]"); }

std::vector<Given> given_tensors(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  std::vector<Given> given;
  for (const TensorId argument : graph.arguments) given.push_back({graph.tensor(argument).name, argument, true});
  for (size_t k = 0; k < graph.results.size(); ++k)
    given.push_back({concat("d_", graph.results[k].name), training.result_gradients[k], false});
  return given;
}

std::vector<Made> made_tensors(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  std::vector<Made> made;
  for (const Output& result : graph.results) made.push_back({result.name, result.tensor});
  for (size_t k = 0; k < graph.arguments.size(); ++k) {
    const TensorId gradient = training.argument_gradients[k];
    if (gradient.valid()) made.push_back({concat("d_", graph.tensor(graph.arguments[k]).name), gradient});
  }
  return made;
}

Result<Done> check_names(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  std::set<std::string> in;
  std::set<std::string> out;
  for (const Given& given : given_tensors(training)) {
    if (!in.insert(given.name).second)
      return Error::make(ErrorKind::bad_input, concat("'", given.name, "' is both an argument and a result's gradient"),
                         "rename one in the program");
  }
  for (const Output& result : graph.results) out.insert(result.name);
  for (const TensorId argument : graph.arguments) {
    const std::string name = concat("d_", graph.tensor(argument).name);
    if (!out.insert(name).second)
      return Error::make(ErrorKind::bad_input, concat("'", name, "' is both a result and an argument's gradient"),
                         "rename one in the program");
  }
  return Done{};
}

namespace {

// Whether an element of this type can have the value. All numbers but zero are true.
bool can_be(DType dtype, double value) {
  if (is_floating(dtype)) return true;
  if (!is_integer(dtype)) return !std::isnan(value);
  const double end = std::ldexp(1.0, static_cast<int>(8 * bytes_of(dtype)) - 1);
  return value == std::floor(value) && value >= -end && value < end;
}

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
    const DType dtype = graph.tensor(wanted.tensor).dtype;
    std::vector<double>& elements = found->second->values;
    const auto wrong =
        std::find_if(elements.begin(), elements.end(), [&](double value) { return !can_be(dtype, value); });
    if (found->second->shape != shape) {
      complain(concat("'", wanted.name, "' has shape ", shown(found->second->shape)),
               concat("the program needs ", shown(shape)));
    } else if (wrong != elements.end()) {
      complain(concat("'", wanted.name, "' is ", name_of(dtype), ", but has the element ", *wrong),
               is_integer(dtype) ? "give whole numbers that fit into its type" : "give true and false, or 1 and 0");
    } else {
      values[wanted.tensor.at()] = std::move(elements);
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

constexpr int64_t kLeastDrawn = 10'000;  // by a thread

void draw_missing(const Graph& graph, const std::vector<Given>& given, uint64_t seed, Values<double>& values) {
  const DrawRules rules = draw_rules(graph);
  for (size_t k = 0; k < given.size(); ++k) {
    const TensorId tensor = given[k].tensor;
    std::vector<double>& elements = values[given[k].tensor.at()];
    if (!elements.empty()) continue;
    elements.resize(static_cast<size_t>(elements_of(graph, given[k].tensor)));
    in_parallel(std::ssize(elements), kLeastDrawn, [&](int64_t begin, int64_t end) {
      for (auto e = static_cast<size_t>(begin); e < static_cast<size_t>(end); ++e)
        elements[e] = drawn_value(rules[tensor.at()], uniform_draw(seed, static_cast<uint32_t>(k), e));
    });
  }
}

}  // namespace

Result<Values<double>> take_given(const TrainingGraph& training, const std::string& path, uint64_t seed) {
  Values<double> values(training.graph.tensors.size());
  const std::vector<Given> given = given_tensors(training);
  if (path.empty()) {
    draw_missing(training.graph, given, seed, values);
    return values;
  }
  if (Result<Done> distinct = check_names(training); !distinct) return distinct.error();
  if (Result<Done> taken = take_from_file(path, training.graph, given, values); !taken) return taken.error();
  for (const IdArgument& argument : id_arguments(training.graph)) {
    const std::vector<double>& ids = values[argument.tensor.at()];
    if (ids.empty()) continue;
    if (Result<Done> right = check_ids(argument, ids); !right) return right.error();
  }
  draw_missing(training.graph, given, seed, values);
  return values;
}

}  // namespace millrace
