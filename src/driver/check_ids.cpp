#include "driver/check_ids.h"

#include <algorithm>

#include "base/text.h"
#include "ir/index_limits.h"

namespace millrace {
namespace {

// For each tensor whose values select rows unchanged, the fewest rows that an operator selects from; zero for any other
// tensor.
std::vector<int64_t> selected_rows(const Graph& graph) {
  std::vector<int64_t> rows(graph.tensors.size(), 0);
  for (const Operator& op : graph.operators) {
    const int64_t positions = selected_positions(graph, op);
    if (positions == 0 || !is_plain(graph, op, op.inputs[1])) continue;
    int64_t& known = rows[op.inputs[1].tensor.at()];
    known = known == 0 ? positions : std::min(known, positions);
  }
  return rows;
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
  const std::vector<int64_t> rows = selected_rows(graph);
  std::vector<IdArgument> found;
  for (size_t position = 0; position < graph.arguments.size(); ++position) {
    const TensorId tensor = graph.arguments[position];
    const Tensor& argument = graph.tensor(tensor);
    if (rows[tensor.at()] > 0)
      found.push_back({argument.name, tensor, position, argument.dtype, elements_of(graph, tensor), rows[tensor.at()]});
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
