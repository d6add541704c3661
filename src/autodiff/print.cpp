#include "autodiff/print.h"

#include "base/text.h"
#include "ir/print.h"

namespace millrace {
std::string print(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  std::string text = print(graph);
  for (size_t k = 0; k < graph.arguments.size(); ++k) {
    const TensorId gradient = training.argument_gradients[k];
    if (gradient.valid())
      text += concat("gradient ", graph.tensor(graph.arguments[k]).name, " = ", graph.tensor(gradient).name, "\n");
  }
  if (!training.kept.empty()) text += "kept for backward\n";
  for (const Kept& kept : training.kept) {
    std::vector<std::string> readers;
    for (const OperatorId reader : kept.readers) readers.push_back(graph.operators[reader.at()].name);
    text += concat("  ", graph.tensor(kept.tensor).name, ": ", name_of(kept.keeping), ", ",
                   words_of(graph, kept.tensor), " words, for ", join(readers, "; "), "\n");
  }
  return text;
}

}  // namespace millrace
