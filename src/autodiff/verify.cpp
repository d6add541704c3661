#include "autodiff/verify.h"

#include "base/text.h"
#include "ir/verify.h"

namespace millrace {
namespace {

bool same_shape(const Graph& graph, TensorId a, TensorId b) {
  const std::vector<DimId>& left = graph.tensor(a).dims;
  const std::vector<DimId>& right = graph.tensor(b).dims;
  if (left.size() != right.size()) return false;
  for (size_t axis = 0; axis < left.size(); ++axis) {
    if (graph.extent(left[axis]) != graph.extent(right[axis])) return false;
  }
  return true;
}

Error broken(const std::string& what) {
  return Error::make(ErrorKind::failed, concat("invalid training graph: ", what),
                     "this is a bug in Millrace: please report it with the program");
}

// Statistics of rows are forward's, and no operator of the graph reads them.
Result<Done> verify_statistics(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  std::vector<bool> statistic(graph.tensors.size(), false);
  for (const OperatorId id : training.statistics) {
    const bool known_operator = id.valid() && id.at() < graph.operators.size();
    if (!known_operator || graph.operators[id.at()].kind != OperatorKind::log_sum_exp)
      return broken("a statistic is not a log_sum_exp");
    if (graph.operators[id.at()].pass != Pass::forward) return broken("a statistic is not a forward operator");
    statistic[graph.operators[id.at()].outputs[0].tensor.at()] = true;
  }
  for (const Operator& op : graph.operators) {
    for (const Access& input : op.inputs) {
      if (statistic[input.tensor.at()])
        return broken(concat(op.name, " reads a statistic, which only fused attention computes"));
    }
  }
  return Done{};
}

}  // namespace

Result<Done> verify(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  if (Result<Done> checked = verify(graph); !checked) return checked;
  if (training.result_gradients.size() != graph.results.size())
    return broken("it does not have one gradient per result");
  if (training.argument_gradients.size() != graph.arguments.size())
    return broken("it does not have one gradient per argument");
  const auto known = [&](TensorId tensor) { return tensor.valid() && tensor.at() < graph.tensors.size(); };
  for (const TensorId gradient : training.result_gradients) {
    if (!known(gradient)) return broken("a result's gradient is not a tensor");
  }
  for (const TensorId gradient : training.argument_gradients) {
    if (gradient.valid() && !known(gradient)) return broken("an argument's gradient is not a tensor");
  }
  for (size_t k = 0; k < graph.results.size(); ++k) {
    if (!same_shape(graph, training.result_gradients[k], graph.results[k].tensor))
      return broken(concat("the gradient of result ", graph.results[k].name, " does not have the result's shape"));
  }
  const std::vector<OperatorId> producers = producers_of(graph);
  for (size_t k = 0; k < graph.arguments.size(); ++k) {
    const Tensor& argument = graph.tensor(graph.arguments[k]);
    const TensorId gradient = training.argument_gradients[k];
    if (gradient.valid() != has_gradient(argument))
      return broken(concat(argument.name, gradient.valid() ? " has a gradient but must not" : " has no gradient"));
    if (!gradient.valid()) continue;
    if (!producers[gradient.at()].valid()) return broken(concat("no operator writes the gradient of ", argument.name));
    if (!same_shape(graph, gradient, graph.arguments[k]))
      return broken(concat("the gradient of ", argument.name, " does not have the argument's shape"));
  }
  for (const Kept& entry : training.kept) {
    if (!known(entry.tensor)) return broken("a kept tensor does not exist");
  }
  bool backward = false;
  std::vector<bool> kept(graph.tensors.size(), false);
  for (const Kept& entry : training.kept) kept[entry.tensor.at()] = true;
  for (const Operator& op : graph.operators) {
    if (backward && op.pass == Pass::forward) return broken("a forward operator follows a backward operator");
    backward = op.pass == Pass::backward;
    if (!backward) continue;
    for (const Access& input : op.inputs) {
      const OperatorId producer = producers[input.tensor.at()];
      const bool from_forward = producer.valid() && graph.operators[producer.at()].pass == Pass::forward;
      if (from_forward && !kept[input.tensor.at()])
        return broken(concat(graph.tensor(input.tensor).name, " is read by backward but not kept"));
    }
  }
  if (Result<Done> checked = verify_statistics(training); !checked) return checked;
  for (const Kept& entry : training.kept) {
    for (const OperatorId reader : entry.readers) {
      const bool in_backward =
          reader.valid() && reader.at() < graph.operators.size() && graph.operators[reader.at()].pass == Pass::backward;
      if (!in_backward)
        return broken(
            concat(graph.tensor(entry.tensor).name, " is kept for an operator that is not a backward operator"));
    }
  }
  return Done{};
}

}  // namespace millrace
