#include <nlohmann/json.hpp>

#include "ir/label.h"
#include "ir/print.h"
#include "report/analysis_report.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

Json tensors_json(const Graph& graph, const std::vector<Access>& accesses) {
  Json list = Json::array();
  for (const Access& access : accesses) {
    const Tensor& tensor = graph.tensor(access.tensor);
    Json shape = Json::array();
    for (const DimId dim : tensor.dims) shape.push_back(graph.extent(dim));
    list.push_back({{"tensor", tensor.name},
                    {"dtype", std::string(name_of(tensor.dtype))},
                    {"shape", shape},
                    {"words", words_of(graph, access.tensor)}});
  }
  return list;
}

Json space_json(const Graph& graph, const Operator& op) {
  Json list = Json::array();
  const std::vector<std::string> names = index_names(graph, op);
  for (size_t index = 0; index < op.space.size(); ++index) {
    list.push_back({{"index", names[index]},
                    {"extent", graph.extent(op.space[index])},
                    {"kind", op.reduced[index] ? "reduced" : "independent"}});
  }
  return list;
}

Json totals_json(const Totals& totals, const Totals& all) {
  const auto share = [](int64_t part, int64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  return {{"operators", totals.operators},
          {"flop", totals.flop},
          {"input_words", totals.input_words},
          {"output_words", totals.output_words},
          {"words", totals.words()},
          {"io_lower_bound_words", totals.io_lower_bound},
          {"flop_share", share(totals.flop, all.flop)},
          {"words_share", share(totals.words(), all.words())}};
}

}  // namespace

std::string analysis_json(const TrainingGraph& training, const Analysis& analysis) {
  const Graph& graph = training.graph;
  Json root = {{"schema_version", kSchemaVersion}, {"program", graph.name}};
  Json sizes = Json::object();
  for (const Dim& dim : graph.dims) sizes[dim.name] = dim.extent;
  root["sizes"] = sizes;
  root["fast_memory_words"] = analysis.fast_memory_words;

  Json operators = Json::array();
  for (const OperatorAnalysis& row : analysis.operators) {
    const Operator& op = graph.operators[row.op.at()];
    operators.push_back({{"name", op.name},
                         {"pass", op.pass == Pass::forward ? "forward" : "backward"},
                         {"class", std::string(name_of(row.operator_class))},
                         {"kind", std::string(info_of(op.kind).name)},
                         {"label", std::string(label_of(graph, op))},
                         {"space", space_json(graph, op)},
                         {"flop", row.flop},
                         {"input_words", row.input_words},
                         {"output_words", row.output_words},
                         {"flop_per_word", row.flop_per_word()},
                         {"io_lower_bound_words", row.io_lower_bound},
                         {"inputs", tensors_json(graph, op.inputs)},
                         {"outputs", tensors_json(graph, op.outputs)}});
  }
  root["operators"] = operators;

  Json totals = totals_json(analysis.total, analysis.total);
  totals["saved_words"] = analysis.saved_words;
  for (const OperatorClass operator_class :
       {OperatorClass::contraction, OperatorClass::normalization, OperatorClass::elementwise}) {
    totals["by_class"][std::string(name_of(operator_class))] =
        totals_json(analysis.by_class.at(static_cast<size_t>(operator_class)), analysis.total);
  }
  totals["by_pass"] = {{"forward", totals_json(analysis.by_pass[0], analysis.total)},
                       {"backward", totals_json(analysis.by_pass[1], analysis.total)}};
  root["totals"] = totals;

  Json kept = Json::array();
  for (const Kept& entry : training.kept) {
    Json readers = Json::array();
    for (const OperatorId reader : entry.readers) readers.push_back(graph.operators[reader.at()].name);
    kept.push_back({{"tensor", graph.tensor(entry.tensor).name},
                    {"keeping", std::string(name_of(entry.keeping))},
                    {"words", words_of(graph, entry.tensor)},
                    {"read_by", readers}});
  }
  root["kept"] = kept;
  root["results"] = Json::array();
  for (const Output& result : graph.results)
    root["results"].push_back({{"name", result.name}, {"tensor", graph.tensor(result.tensor).name}});
  root["gradients"] = Json::array();
  for (size_t k = 0; k < graph.arguments.size(); ++k) {
    const TensorId gradient = training.argument_gradients[k];
    if (gradient.valid())
      root["gradients"].push_back(
          {{"argument", graph.tensor(graph.arguments[k]).name}, {"tensor", graph.tensor(gradient).name}});
  }
  return root.dump(2) + "\n";
}

}  // namespace millrace
