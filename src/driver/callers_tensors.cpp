#include "driver/callers_tensors.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace millrace {
namespace {

// Records which tensors the caller stacks.
void find_stacks(const Candidates& candidates, std::vector<CallersTensor>& tensors) {
  for (size_t f = 0; f < candidates.callers_contiguous_groups; ++f) {
    const std::vector<TensorId>& family = candidates.contiguous_groups[f];
    const auto position = [&](TensorId tensor) {
      const auto found =
          std::find_if(tensors.begin(), tensors.end(), [&](const CallersTensor& t) { return t.tensor == tensor; });
      return static_cast<size_t>(found - tensors.begin());
    };
    if (position(family.front()) == tensors.size()) continue;  // the whole contiguous group is in another list
    for (size_t k = 1; k < family.size(); ++k)
      tensors[position(family[k])].follows = static_cast<int>(position(family[k - 1]));
  }
}

}  // namespace

CallersBlocks blocks_of(const std::vector<CallersTensor>& tensors) {
  CallersBlocks made;
  made.slots.resize(tensors.size());
  for (size_t first = 0; first < tensors.size(); ++first) {
    if (tensors[first].follows >= 0) continue;
    made.bytes.push_back(0);
    for (size_t k = first; k < tensors.size();) {
      made.slots[k] = {made.bytes.size() - 1, made.bytes.back()};
      made.bytes.back() += tensors[k].bytes;
      const auto next = std::find_if(tensors.begin(), tensors.end(),
                                     [&](const CallersTensor& t) { return t.follows == static_cast<int>(k); });
      k = static_cast<size_t>(next - tensors.begin());
    }
  }
  return made;
}

CallersLists callers_lists(const LoadedPlan& loaded) {
  const Graph& graph = loaded.training.graph;
  const auto describe = [&](const std::string& name, TensorId tensor) {
    CallersTensor made{name, tensor, {}, 0, -1};
    if (!tensor.valid()) return made;
    made.bytes = static_cast<int64_t>(sizeof(double));  // of a scalar
    for (const PlanBuffer& buffer : loaded.plan.buffers) {
      if (buffer.location == BufferLocation::arena || buffer.tensor != graph.tensor(tensor).name) continue;
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
  for (std::vector<CallersTensor>* list :
       {&lists.arguments, &lists.results, &lists.result_gradients, &lists.argument_gradients})
    find_stacks(loaded.candidates, *list);
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
  const CallersBlocks blocks = blocks_of(tensors);
  const size_t first = memory_.size();
  for (const int64_t bytes : blocks.bytes) memory_.emplace_back(bytes);
  for (size_t k = 0; k < tensors.size(); ++k) {
    const CallersTensor& tensor = tensors[k];
    char* const data = memory_[first + blocks.slots[k].block].data() + blocks.slots[k].offset;
    pointers.push_back(data);
    if (given == nullptr) {
      std::memset(data, 0, static_cast<size_t>(tensor.bytes));  // touches its pages
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
