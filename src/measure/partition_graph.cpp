#include "measure/partition_graph.h"

#include <algorithm>
#include <map>

namespace millrace {

PartitionGraph partition_graph(const Graph& whole, const Partition& partition) {
  PartitionGraph made;
  made.graph.dims = whole.dims;
  std::map<TensorId, TensorId> here;
  std::vector<OperatorId> operators = partition.operators;
  operators.insert(operators.end(), partition.repeats.begin(), partition.repeats.end());
  std::sort(operators.begin(), operators.end());
  std::vector<TensorId> written;
  for (const OperatorId id : operators) {
    for (const Access& output : whole.operators[id.at()].outputs) written.push_back(output.tensor);
  }
  const auto local = [&](TensorId tensor) {
    const auto [found, fresh] = here.try_emplace(tensor, TensorId(made.graph.tensors.size()));
    if (!fresh) return found->second;
    Tensor copy = whole.tensor(tensor);
    const bool is_written = std::find(written.begin(), written.end(), tensor) != written.end();
    if (copy.role == TensorRole::computed || copy.role == TensorRole::result_gradient)
      copy.role = is_written ? TensorRole::computed : TensorRole::argument;
    if (copy.role == TensorRole::argument || copy.role == TensorRole::scalar)
      made.graph.arguments.push_back(found->second);
    made.graph.tensors.push_back(std::move(copy));
    return found->second;
  };
  for (const OperatorId id : operators) {
    Operator op = whole.operators[id.at()];
    for (std::vector<Access>* accesses : {&op.inputs, &op.outputs}) {
      for (Access& access : *accesses) access.tensor = local(access.tensor);
    }
    made.graph.operators.push_back(std::move(op));
  }
  for (const TensorId tensor : partition.reads) made.reads.push_back(local(tensor));
  for (const TensorId tensor : partition.writes) made.writes.push_back(local(tensor));
  return made;
}

}  // namespace millrace
