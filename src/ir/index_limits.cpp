#include "ir/index_limits.h"

#include <algorithm>

namespace millrace {
namespace {

// Zero means no limit.
void tighten(int64_t& limit, int64_t extent) { limit = limit == 0 ? extent : std::min(limit, extent); }

// The first input whose values the output takes: a where takes those of its second and third, a copy or join those of
// all.
size_t first_taken(OperatorKind kind) { return kind == OperatorKind::where ? 1 : 0; }

bool takes_values(OperatorKind kind) {
  return kind == OperatorKind::copy || kind == OperatorKind::join || kind == OperatorKind::where;
}

}  // namespace

int64_t selected_positions(const Graph& graph, const Operator& op) {
  if (op.kind == OperatorKind::scatter_add) return graph.extent(op.space[as_index(op.gathered)]);
  if (op.kind != OperatorKind::gather) return 0;
  return graph.extent(graph.tensor(op.inputs[0].tensor).dims[as_index(op.gathered)]);
}

std::vector<int64_t> index_limits(const Graph& graph) {
  std::vector<int64_t> limits(graph.tensors.size(), 0);
  for (size_t k = graph.operators.size(); k-- > 0;) {
    const Operator& op = graph.operators[k];
    const int64_t limit = limits[op.outputs[0].tensor.at()];
    if (const int64_t positions = selected_positions(graph, op); positions > 0)
      tighten(limits[op.inputs[1].tensor.at()], positions);
    if (op.kind == OperatorKind::gather && limit > 0) tighten(limits[op.inputs[0].tensor.at()], limit);
    if (limit == 0 || !takes_values(op.kind)) continue;
    for (size_t input = first_taken(op.kind); input < op.inputs.size(); ++input)
      tighten(limits[op.inputs[input].tensor.at()], limit);
  }
  const std::vector<std::vector<OperatorId>> readers = readers_of(graph);
  for (const TensorId argument : graph.arguments) {
    if (is_integer(graph.tensor(argument).dtype) && readers[argument.at()].empty()) limits[argument.at()] = 1;
  }
  return limits;
}

}  // namespace millrace
