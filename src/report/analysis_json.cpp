#include <nlohmann/json.hpp>

#include "ir/label.h"
#include "ir/print.h"
#include "report/analysis_report.h"
#include "report/json_text.h"
#include "report/message_json.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kAnalysisVersion = 1;

// The words of a tensor that the operator reads, all its accesses together.
int64_t words_read(const Graph& graph, const Operator& op, TensorId tensor) {
  std::vector<TensorUse> uses;
  for (size_t input = 0; input < op.inputs.size(); ++input) {
    if (op.inputs[input].tensor == tensor) uses.push_back({&op, input});
  }
  return uses.empty() ? words_of(graph, tensor) : words_touched(graph, uses);
}

Json tensors_json(const Graph& graph, const Operator& op, const std::vector<Access>& accesses) {
  Json list = Json::array();
  for (const Access& access : accesses) {
    const Tensor& tensor = graph.tensor(access.tensor);
    Json shape = Json::array();
    for (const DimId dim : tensor.dims) shape.push_back(graph.extent(dim));
    list.push_back({{"tensor", tensor.name},
                    {"dtype", std::string(name_of(tensor.dtype))},
                    {"shape", shape},
                    {"words", words_read(graph, op, access.tensor)}});
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
  const auto share = [](int64_t partition, int64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(partition) / static_cast<double>(whole);
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

Json operator_json(const Graph& graph, const OperatorAnalysis& row) {
  const Operator& op = graph.operators[row.op.at()];
  return {{"name", op.name},
          {"pass", name_of(op.pass)},
          {"class", std::string(name_of(row.operator_class))},
          {"kind", std::string(info_of(op.kind).name)},
          {"label", std::string(label_of(graph, op))},
          {"space", space_json(graph, op)},
          {"flop", row.flop},
          {"input_words", row.input_words},
          {"output_words", row.output_words},
          {"flop_per_word", row.flop_per_word()},
          {"io_lower_bound_words", row.io_lower_bound},
          {"inputs", tensors_json(graph, op, op.inputs)},
          {"outputs", tensors_json(graph, op, op.outputs)}};
}

}  // namespace

std::string analysis_json(const TrainingGraph& training, const Analysis& analysis,
                          const std::vector<Diagnostic>& warnings) {
  const Graph& graph = training.graph;
  JsonText text;
  text.field("schema_version", kAnalysisVersion);
  text.field("program", graph.name);
  Json sizes = Json::object();
  for (const Dim& dim : graph.dims) {
    if (is_size(dim)) sizes[dim.name] = dim.extent;
  }
  text.field("sizes", sizes);
  text.field("fast_memory_words", analysis.fast_memory_words);
  if (!warnings.empty()) text.list("warnings", warnings.size(), [&](size_t k) { return message_json(warnings[k]); });
  text.list("operators", analysis.operators.size(),
            [&](size_t k) { return operator_json(graph, analysis.operators[k]); });

  Json totals = totals_json(analysis.total, analysis.total);
  totals["saved_words"] = analysis.saved_words;
  for (const OperatorClass operator_class :
       {OperatorClass::contraction, OperatorClass::normalization, OperatorClass::elementwise}) {
    totals["by_class"][std::string(name_of(operator_class))] =
        totals_json(analysis.by_class.at(static_cast<size_t>(operator_class)), analysis.total);
  }
  totals["by_pass"] = {{"forward", totals_json(analysis.by_pass[0], analysis.total)},
                       {"backward", totals_json(analysis.by_pass[1], analysis.total)}};
  text.field("totals", totals);

  text.list("kept", training.kept.size(), [&](size_t k) {
    const Kept& entry = training.kept[k];
    Json readers = Json::array();
    for (const OperatorId reader : entry.readers) readers.push_back(graph.operators[reader.at()].name);
    return Json{{"tensor", graph.tensor(entry.tensor).name},
                {"keeping", std::string(name_of(entry.keeping))},
                {"words", words_of(graph, entry.tensor)},
                {"read_by", readers}};
  });
  text.list("results", graph.results.size(), [&](size_t k) {
    return Json{{"name", graph.results[k].name}, {"tensor", graph.tensor(graph.results[k].tensor).name}};
  });
  std::vector<size_t> differentiated;
  for (size_t k = 0; k < graph.arguments.size(); ++k) {
    if (training.argument_gradients[k].valid()) differentiated.push_back(k);
  }
  text.list("gradients", differentiated.size(), [&](size_t k) {
    const size_t argument = differentiated[k];
    return Json{{"argument", graph.tensor(graph.arguments[argument]).name},
                {"tensor", graph.tensor(training.argument_gradients[argument]).name}};
  });
  return std::move(text).finish();
}

}  // namespace millrace
