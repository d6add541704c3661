#include "random/emit.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/text.h"
#include "frontend/frontend.h"
#include "random/generator.h"
#include "random/inputs.h"
#include "random/value.h"
#include "reference/bounded.h"

namespace millrace::random_programs {
namespace {

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

// JSON has no infinities, and nlohmann drops them: they are written as strings.
std::string numbers(const std::vector<double>& values) {
  std::vector<std::string> texts;
  for (const double value : values) {
    texts.push_back(std::isfinite(value) ? number_text(value) : concat("\"", value, "\""));
  }
  return "[" + join(texts, ", ") + "]";
}

std::string shape_of(const Graph& graph, const Tensor& tensor) {
  if (tensor.role == TensorRole::scalar) return "null";
  std::vector<int64_t> extents;
  for (const DimId dim : tensor.dims) extents.push_back(graph.extent(dim));
  return "[" + join(extents, ", ") + "]";
}

}  // namespace

Result<std::string> emitted(uint64_t seed) {
  const std::string text = random_program(seed);
  Result<Graph> parsed = parse_program(text, {});
  if (!parsed) return parsed.error();
  const Graph& graph = *parsed;
  const Inputs inputs = draw_inputs(graph, seed);
  Values<Bounded<53>> values(graph.tensors.size());
  std::vector<std::string> input_texts;
  for (size_t i = 0; i < graph.arguments.size(); ++i) {
    const Tensor& tensor = graph.tensor(graph.arguments[i]);
    const std::vector<double>& data = inputs.arguments[i];
    values[graph.arguments[i].at()].assign(data.begin(), data.end());
    input_texts.push_back(concat(quoted(tensor.name), ": {\"shape\": ", shape_of(graph, tensor), ", \"dtype\": \"",
                                 name_of(tensor.dtype), "\", \"data\": ", numbers(data), "}"));
  }
  const Result<Done> done = interpret<Bounded<53>>(graph, values, inputs.random);
  if (!done) return done.error();
  std::vector<std::string> result_texts;
  for (const Output& result : graph.results) {
    std::vector<double> data;
    std::vector<double> bounds;
    for (const Bounded<53>& value : values[result.tensor.at()]) {
      data.push_back(value.value);
      bounds.push_back(value.error);
    }
    result_texts.push_back(concat(quoted(result.name), ": {\"shape\": ", shape_of(graph, graph.tensor(result.tensor)),
                                  ", \"data\": ", numbers(data), ", \"bound\": ", numbers(bounds), "}"));
  }
  return concat("{\"seed\": ", seed, ", \"text\": ", quoted(text), ", \"inputs\": {", join(input_texts, ", "),
                "}, \"random_seed\": ", inputs.random.seed, ", \"step\": ", inputs.random.step, ", \"results\": {",
                join(result_texts, ", "), "}}");
}

}  // namespace millrace::random_programs
