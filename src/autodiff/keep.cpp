#include "autodiff/keep.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace millrace {
namespace {

bool is_cheap_to_make(const Graph& graph, const Operator& op, TensorId tensor) {
  if (info_of(op.kind).operator_class != OperatorClass::elementwise || op.kind == OperatorKind::dropout) return false;
  int64_t reads = 0;
  for (size_t k = 0; k < op.inputs.size(); ++k)
    reads += words_touched(graph, points_of_input(graph, op, k), op.inputs[k]);
  return reads < words_of(graph, tensor);
}

}  // namespace

void decide_keeping(TrainingGraph& training) {
  Graph& graph = training.graph;
  const auto backward_begin = std::find_if(graph.operators.begin(), graph.operators.end(),
                                           [](const Operator& op) { return op.pass == Pass::backward; });
  const auto forward_count = static_cast<size_t>(backward_begin - graph.operators.begin());
  std::vector<bool> needed(graph.tensors.size(), false);
  for (size_t k = forward_count; k < graph.operators.size(); ++k) {
    for (const Access& input : graph.operators[k].inputs) needed[input.tensor.at()] = true;
  }

  // Goes from the last forward operator to the first, so that the inputs of a recomputation are decided after it.
  std::map<TensorId, TensorId> again;
  std::vector<Operator> recomputations;
  for (size_t k = forward_count; k-- > 0;) {
    const TensorId tensor = graph.operators[k].outputs[0].tensor;
    if (!needed[tensor.at()] || !is_cheap_to_make(graph, graph.operators[k], tensor)) continue;
    Operator op = graph.operators[k];
    op.name += " again";
    op.pass = Pass::backward;
    Tensor copy = graph.tensor(tensor);
    copy.name += ".again";
    again[tensor] = TensorId(graph.tensors.size());
    op.outputs[0].tensor = again[tensor];
    graph.tensors.push_back(std::move(copy));
    for (const Access& input : op.inputs) needed[input.tensor.at()] = true;
    recomputations.push_back(std::move(op));
  }
  const auto redirect = [&](Operator& op) {
    for (Access& input : op.inputs) {
      const auto found = again.find(input.tensor);
      if (found != again.end()) input.tensor = found->second;
    }
  };
  for (size_t k = forward_count; k < graph.operators.size(); ++k) redirect(graph.operators[k]);
  for (Operator& op : recomputations) redirect(op);
  graph.operators.insert(graph.operators.begin() + static_cast<std::ptrdiff_t>(forward_count), recomputations.rbegin(),
                         recomputations.rend());

  std::map<TensorId, TensorId> original;
  for (const auto& [tensor, copy] : again) original[copy] = tensor;
  std::vector<bool> by_forward(graph.tensors.size(), false);
  for (const TensorId argument : graph.arguments) by_forward[argument.at()] = true;
  for (size_t k = 0; k < forward_count; ++k) {
    for (const Access& output : graph.operators[k].outputs) by_forward[output.tensor.at()] = true;
  }
  std::map<TensorId, Kept> kept;
  for (size_t k = forward_count; k < graph.operators.size(); ++k) {
    for (const Access& input : graph.operators[k].inputs) {
      const auto made_again = original.find(input.tensor);
      const TensorId tensor = made_again == original.end() ? input.tensor : made_again->second;
      if (!by_forward[tensor.at()] || graph.tensor(tensor).role == TensorRole::scalar) continue;
      Kept& entry = kept[tensor];
      entry.tensor = tensor;
      entry.keeping = made_again != original.end()                        ? Keeping::recomputed
                      : graph.tensor(tensor).role == TensorRole::argument ? Keeping::given
                                                                          : Keeping::saved;
      if (entry.readers.empty() || entry.readers.back() != OperatorId(k)) entry.readers.emplace_back(k);
    }
  }
  for (auto& [tensor, entry] : kept) training.kept.push_back(std::move(entry));
}

}  // namespace millrace
