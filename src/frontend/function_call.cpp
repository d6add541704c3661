#include "frontend/function_call.h"

#include <algorithm>

#include "base/text.h"
#include "frontend/constants.h"

namespace millrace {

Value FunctionCall::report(std::string_view message, std::string_view remedy) const {
  diagnostics.report(location(), message, remedy);
  return Value::broken();
}

const View* FunctionCall::tensor(size_t parameter) const {
  const Value& value = *arguments[parameter];
  if (value.kind == ValueKind::view) return &value.view;
  report(concat("'", expression.text, "' needs a tensor, not a number"),
         "pass an argument, or a value computed from one");
  return nullptr;
}

std::optional<double> FunctionCall::number(size_t parameter, double fallback) const {
  if (!arguments[parameter]) return fallback;
  const Value& value = *arguments[parameter];
  if (value.kind == ValueKind::number) return value.number;
  report(concat("an argument of '", expression.text, "' must be a constant number"), "write a number or a size");
  return std::nullopt;
}

std::optional<int64_t> FunctionCall::integer(size_t parameter, int64_t fallback) const {
  if (!arguments[parameter]) return fallback;
  if (arguments[parameter]->integer) return arguments[parameter]->integer;
  report(concat("an argument of '", expression.text, "' must be a constant integer"), "write an integer or a size");
  return std::nullopt;
}

std::optional<size_t> FunctionCall::axis(const Value& value, size_t rank) const {
  const auto signed_rank = static_cast<int64_t>(rank);
  if (value.kind == ValueKind::number && value.integer && *value.integer >= -signed_rank &&
      *value.integer < signed_rank) {
    return static_cast<size_t>(*value.integer < 0 ? *value.integer + signed_rank : *value.integer);
  }
  report(concat("the axis of '", expression.text, "' is not one of the ", rank, " axes of its tensor"),
         rank == 0 ? "a scalar has no axes" : concat("write axis=0 to axis=", rank - 1, ", or -1 for the last"));
  return std::nullopt;
}

std::optional<std::vector<bool>> FunctionCall::marked_axes(const Value& value, size_t rank) const {
  std::vector<bool> marked(rank, false);
  for (const Value& item : value.kind == ValueKind::tuple ? *value.items : std::vector<Value>{value}) {
    const std::optional<size_t> found = axis(item, rank);
    if (!found) return std::nullopt;
    if (marked[*found]) {
      report(concat("axis ", *found, " is given twice"), "give each axis once");
      return std::nullopt;
    }
    marked[*found] = true;
  }
  return marked;
}

std::optional<std::vector<bool>> FunctionCall::axes(size_t parameter, size_t rank) const {
  if (!arguments[parameter] || arguments[parameter]->kind == ValueKind::nothing) return std::vector<bool>(rank, true);
  return marked_axes(*arguments[parameter], rank);
}

std::optional<std::vector<bool>> FunctionCall::normalized_axes(size_t parameter, size_t rank) const {
  const Value value = arguments[parameter].value_or(Value::of_integer(-1));
  if (value.kind == ValueKind::tuple && value.items->empty()) {
    report(concat("'", expression.text, "' needs at least one axis"), "write axis=-1 for the last axis");
    return std::nullopt;
  }
  return marked_axes(value, rank);
}

Value FunctionCall::map(OperatorKind kind, const std::vector<Value>& inputs, double value) const {
  const bool numbers =
      std::all_of(inputs.begin(), inputs.end(), [](const Value& v) { return v.kind == ValueKind::number; });
  if (numbers) return fold_function(kind, inputs, value, location(), diagnostics);
  return builder.map(kind, inputs, location(), value);
}

double points_along(const FunctionCall& call, const View& view, const std::vector<bool>& axes) {
  double count = 1;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (axes[axis]) count *= static_cast<double>(call.builder.extent(view, axis));
  }
  return count;
}

}  // namespace millrace
