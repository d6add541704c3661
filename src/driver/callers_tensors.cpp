#include "driver/callers_tensors.h"

#include <algorithm>
#include <cstring>

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

CallersMemory::CallersMemory(const LoadedPlan& loaded, const Values<double>& given)
    : loaded_(loaded),
      lists_(callers_lists(loaded)),
      arguments_(add(lists_.arguments, &given)),
      results_(add(lists_.results, nullptr)),
      result_gradients_(add(lists_.result_gradients, &given)),
      argument_gradients_(add(lists_.argument_gradients, nullptr)) {}

std::vector<void*> CallersMemory::add(const std::vector<CallersTensor>& tensors, const Values<double>* given) {
  const Graph& graph = loaded_.training.graph;
  std::vector<void*> pointers;
  for (const CallersTensor& tensor : tensors) {
    char* const data = memory_.emplace_back(tensor.bytes).data();
    pointers.push_back(data);
    if (given == nullptr) {
      std::memset(data, 0, static_cast<size_t>(tensor.bytes));  // so that its pages are there
    } else if (graph.tensor(tensor.tensor).role == TensorRole::scalar) {
      std::memcpy(data, (*given)[tensor.tensor.at()].data(), sizeof(double));
    } else {
      put_values(graph, tensor.tensor, tensor.layout, (*given)[tensor.tensor.at()], data);
    }
  }
  return pointers;
}

std::array<CallersMemory::List, 4> CallersMemory::lists() const {
  return {List{&lists_.arguments, arguments_, false}, List{&lists_.results, results_, true},
          List{&lists_.result_gradients, result_gradients_, false},
          List{&lists_.argument_gradients, argument_gradients_, true}};
}

CallersTensors CallersMemory::pointers() const {
  return {arguments_.data(), results_.data(), result_gradients_.data(), argument_gradients_.data(), nullptr, nullptr};
}

void CallersMemory::take(Values<double>& values) const {
  const auto take_list = [&](const std::vector<CallersTensor>& tensors, const std::vector<void*>& pointers) {
    for (size_t k = 0; k < tensors.size(); ++k) {
      const TensorId tensor = tensors[k].tensor;
      if (tensor.valid())
        values[tensor.at()] =
            take_values(loaded_.training.graph, tensor, tensors[k].layout, static_cast<const char*>(pointers[k]));
    }
  };
  take_list(lists_.results, results_);
  take_list(lists_.argument_gradients, argument_gradients_);
}

}  // namespace millrace
