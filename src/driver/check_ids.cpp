#include "driver/check_ids.h"

#include <algorithm>

#include "base/text.h"

namespace millrace {
namespace {

// How many rows a gather or scatter_add can select; zero for other operators.
int64_t rows_of(const Graph& graph, const Operator& op) {
  if (op.kind == OperatorKind::scatter_add) return graph.extent(op.space[static_cast<size_t>(op.gathered)]);
  if (op.kind != OperatorKind::gather) return 0;
  return graph.extent(graph.tensor(op.inputs[0].tensor).dims[static_cast<size_t>(op.gathered)]);
}

template <class T>
Result<Done> check(const IdArgument& argument, const T* values) {
  const T* const end = values + argument.elements;
  const T* const wrong =
      std::find_if(values, end, [&](T id) { return !(id >= 0 && id < static_cast<T>(argument.rows)); });
  if (wrong == end) return Done{};
  const auto id = static_cast<int64_t>(*wrong);
  return Error::make(ErrorKind::bad_input,
                     concat("argument '", argument.name, "' has the id ", id, ", but selects from ", argument.rows,
                            argument.rows == 1 ? " row" : " rows"),
                     id < 0 ? "ids count from 0; replace negative ones before the call"
                            : concat("the largest id is ", argument.rows - 1));
}

}  // namespace

std::vector<IdArgument> id_arguments(const Graph& graph) {
  std::vector<IdArgument> found;
  for (size_t position = 0; position < graph.arguments.size(); ++position) {
    const TensorId tensor = graph.arguments[position];
    int64_t rows = 0;
    for (const Operator& op : graph.operators) {
      const int64_t its_rows = rows_of(graph, op);
      if (its_rows > 0 && op.inputs[1].tensor == tensor && is_plain(graph, op, op.inputs[1]))
        rows = rows == 0 ? its_rows : std::min(rows, its_rows);
    }
    if (rows > 0)
      found.push_back(
          {graph.tensor(tensor).name, tensor, position, graph.tensor(tensor).dtype, elements_of(graph, tensor), rows});
  }
  return found;
}

Result<Done> check_ids(const IdArgument& argument, const std::vector<double>& values) {
  return check(argument, values.data());
}

Result<Done> check_ids(const IdArgument& argument, const void* memory) {
  if (argument.dtype == DType::int32) return check(argument, static_cast<const int32_t*>(memory));
  return check(argument, static_cast<const int64_t*>(memory));
}

}  // namespace millrace
