#include "driver/callers_tensors.h"

#include <algorithm>

#include "base/text.h"

namespace millrace {

CallersLists callers_lists(const LoadedPlan& loaded) {
  const Graph& graph = loaded.training.graph;
  const auto describe = [&](const std::string& name, TensorId tensor) {
    CallersTensor made{name, tensor, {}, 0};
    if (!tensor.valid()) return made;
    made.bytes = static_cast<int64_t>(sizeof(double));  // a scalar's
    for (const PlanBuffer& buffer : loaded.plan.buffers) {
      if (buffer.place == BufferPlace::arena || buffer.tensor != graph.tensor(tensor).name) continue;
      const std::vector<Layout>& domain = loaded.candidates.domains[tensor.at()].layouts;
      made.layout = *std::find_if(domain.begin(), domain.end(), [&](const Layout& layout) {
        return print_layout(graph, tensor, layout) == buffer.layout;
      });
      made.bytes = buffer.bytes;
    }
    return made;
  };
  CallersLists lists;
  for (size_t k = 0; k < graph.arguments.size(); ++k) {
    const std::string& name = graph.tensor(graph.arguments[k]).name;
    lists.arguments.push_back(describe(name, graph.arguments[k]));
    lists.argument_gradients.push_back(describe(concat("d_", name), loaded.training.argument_gradients[k]));
  }
  for (size_t k = 0; k < graph.results.size(); ++k) {
    const Output& result = graph.results[k];
    lists.results.push_back(describe(result.name, result.tensor));
    lists.result_gradients.push_back(describe(concat("d_", result.name), loaded.training.result_gradients[k]));
  }
  return lists;
}

}  // namespace millrace
