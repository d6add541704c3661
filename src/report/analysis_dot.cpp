#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "report/analysis_report.h"

namespace millrace {
namespace {

// Quoted for Graphviz. Names contain no quotes today, but the picture must not depend on that.
std::string dot_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string rounded_count(int64_t number) {
  const auto value = static_cast<double>(number);
  if (value >= 1e9) return fixed(value / 1e9, 2) + "G";
  if (value >= 1e6) return fixed(value / 1e6, 2) + "M";
  if (value >= 1e3) return fixed(value / 1e3, 2) + "k";
  return concat(number);
}

// The paper's shapes: triangle, square, circle. The colours suit colour-blind readers (Okabe and Ito).
std::string node_style(OperatorClass operator_class) {
  switch (operator_class) {
    case OperatorClass::contraction: return "shape=house, fillcolor=\"#56B4E9\"";
    case OperatorClass::normalization: return "shape=box, fillcolor=\"#E69F00\"";
    case OperatorClass::elementwise: return "shape=ellipse, fillcolor=\"#F0E442\"";
  }
  return "";
}

std::string edge(const std::string& from, const std::string& to, const Graph& graph, TensorId tensor, bool saved) {
  const int64_t words = words_of(graph, tensor);
  const double width = 0.5 + 0.25 * std::log2(1.0 + static_cast<double>(words) / 1e4);
  return concat("  ", from, " -> ", to,
                " [label=", dot_text(concat(graph.tensor(tensor).name, "\n", rounded_count(words))),
                ", penwidth=", fixed(width, 2), saved ? ", style=dashed, constraint=false" : "", "];\n");
}

}  // namespace

std::string analysis_dot(const TrainingGraph& training, const Analysis& analysis) {
  const Graph& graph = training.graph;
  std::string text =
      concat("digraph ", dot_text(graph.name),
             " {\n  node [style=filled, fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", fontsize=10];\n");
  const std::vector<OperatorId> producers = producers_of(graph);
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    const Tensor& tensor = graph.tensors[k];
    if (tensor.role != TensorRole::argument && tensor.role != TensorRole::result_gradient) continue;
    text += concat("  t", k, " [label=", dot_text(tensor.name), ", shape=plaintext, style=solid];\n");
  }
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    text += concat("  subgraph cluster_", name_of(pass), " {\n    label=", name_of(pass), ";\n");
    for (const OperatorAnalysis& row : analysis.operators) {
      const Operator& op = graph.operators[row.op.at()];
      if (op.pass != pass) continue;
      const std::string label =
          concat(op.name, "\n", rounded_count(row.flop), " flop, ", fixed(row.flop_per_word(), 1), " flop/word");
      text += concat("    o", row.op.at(), " [label=", dot_text(label), ", ", node_style(row.operator_class), "];\n");
    }
    text += "  }\n";
  }
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    std::vector<TensorId> seen;
    for (const Access& input : graph.operators[k].inputs) {
      if (words_of(graph, input.tensor) == 0 || std::find(seen.begin(), seen.end(), input.tensor) != seen.end())
        continue;
      seen.push_back(input.tensor);
      const OperatorId producer = producers[input.tensor.at()];
      const std::string from = producer.valid() ? concat("o", producer.at()) : concat("t", input.tensor.at());
      const bool saved = producer.valid() && graph.operators[producer.at()].pass != graph.operators[k].pass;
      text += edge(from, concat("o", k), graph, input.tensor, saved);
    }
  }
  const auto leaf = [&](const std::string& name, TensorId tensor) {
    text += concat("  r", tensor.at(), " [label=", dot_text(name), ", shape=plaintext, style=solid];\n");
    text += edge(concat("o", producers[tensor.at()].at()), concat("r", tensor.at()), graph, tensor, false);
  };
  for (const Output& result : graph.results) leaf(result.name, result.tensor);
  for (size_t k = 0; k < graph.arguments.size(); ++k) {
    const TensorId gradient = training.argument_gradients[k];
    if (gradient.valid()) leaf(concat("d_", graph.tensor(graph.arguments[k]).name), gradient);
  }
  return text + "}\n";
}

}  // namespace millrace
