#include <algorithm>

#include "base/text.h"
#include "frontend/function_handlers.h"
#include "frontend/shape_call.h"
#include "frontend/views.h"

namespace millrace {
namespace {

// The weight or bias of a normalization, which may be absent.
struct OptionalTensor {
  const View* view = nullptr;
  bool valid = true;
};

OptionalTensor optional_tensor(const FunctionCall& call, size_t parameter) {
  if (!call.arguments[parameter]) return {};
  const View* const view = call.tensor(parameter);
  return {view, view != nullptr};
}

// The arguments that normalizations with weight and bias have.
struct NormArguments {
  const View* view = nullptr;
  const View* weight = nullptr;  // null: absent
  const View* bias = nullptr;    // null: absent
  double epsilon = 0;
};

// The bias follows the weight in the signature, and epsilon is the second one after it. Nothing after an error.
std::optional<NormArguments> norm_arguments(const FunctionCall& call, size_t weight_parameter) {
  const OptionalTensor weight = optional_tensor(call, weight_parameter);
  const OptionalTensor bias = weight.valid ? optional_tensor(call, weight_parameter + 1) : OptionalTensor{};
  if (!weight.valid || !bias.valid) return std::nullopt;
  const std::optional<double> epsilon = call.number(weight_parameter + 3, 1e-5);
  const View* const view = epsilon ? call.tensor(0) : nullptr;
  if (view == nullptr) return std::nullopt;
  return NormArguments{view, weight.view, bias.view, *epsilon};
}

// value · weight + bias, both along the marked axes of the value; either may be absent.
Value scaled_and_shifted(const FunctionCall& call, Value value, const std::vector<bool>& axes,
                         const NormArguments& norm) {
  for (const View* parameter : {norm.weight, norm.bias}) {
    if (value.kind != ValueKind::view || parameter == nullptr) continue;
    if (!call.builder.check_weight(*parameter, value.view, axes, call.location())) return Value::broken();
    value = call.map(parameter == norm.weight ? OperatorKind::multiply : OperatorKind::add,
                     {value, Value::of(call.builder.spread(*parameter, axes))});
  }
  return value;
}

// Zero mean and unit variance along the marked axes.
Value standardized(const FunctionCall& call, const NormArguments& norm, const std::vector<bool>& axes) {
  const View one = call.builder.constant(1).view;
  const View zero = call.builder.constant(0).view;
  return call.builder.normalize(OperatorKind::layernorm, *norm.view, axes, {one, zero}, norm.epsilon, call.location());
}

// The axis of a batchnorm's or groupnorm's channels.
std::optional<size_t> channel_axis(const FunctionCall& call, size_t parameter, const View& view) {
  if (view.axes.size() < 2) {
    call.report(concat("'", call.expression.text, "' needs a tensor with at least two axes"),
                "axis 0 is the batch, and axis=1 the channels");
    return std::nullopt;
  }
  return call.axis(call.arguments[parameter].value_or(Value::of_integer(1)), view.axes.size());
}

std::vector<bool> only(size_t axis, size_t rank) {
  std::vector<bool> marked(rank, false);
  marked[axis] = true;
  return marked;
}

// Splits the channels into [groups, channels // groups], and normalizes over every axis except those of the batch and
// of the groups.
Value standardized_in_groups(const FunctionCall& call, const NormArguments& norm, size_t axis, int64_t groups) {
  const std::vector<int64_t> extents = extents_of(*norm.view, call.builder);
  std::vector<int64_t> split = extents;
  split[axis] /= groups;
  split.insert(split.begin() + static_cast<std::ptrdiff_t>(axis), groups);
  const std::optional<View> grouped = reshaped(*norm.view, split, call.builder, call.location());
  if (!grouped) return Value::broken();
  std::vector<bool> normalized(split.size(), true);
  normalized[0] = false;
  normalized[axis] = false;
  const Value value = standardized(call, {&*grouped, nullptr, nullptr, norm.epsilon}, normalized);
  if (value.kind != ValueKind::view) return Value::broken();
  const std::optional<View> result = reshaped(value.view, extents, call.builder, call.location());
  return result ? Value::of(*result) : Value::broken();
}

}  // namespace

Value call_softmax(const FunctionCall& call, OperatorKind kind) {
  const View* const view = call.tensor(0);
  if (view == nullptr) return Value::broken();
  const std::optional<std::vector<bool>> axes = call.normalized_axes(1, view->axes.size());
  return axes ? call.builder.normalize(kind, *view, *axes, {}, 0, call.location()) : Value::broken();
}

Value call_log_softmax(const FunctionCall& call, OperatorKind) {
  const View* const view = call.tensor(0);
  if (view == nullptr) return Value::broken();
  const std::optional<std::vector<bool>> axes = call.normalized_axes(1, view->axes.size());
  if (!axes) return Value::broken();
  const Value divisor = call.builder.reduce(OperatorKind::log_sum_exp, *view, *axes, true, call.location());
  if (divisor.kind != ValueKind::view) return Value::broken();
  return call.map(OperatorKind::subtract, {Value::of(*view), divisor});
}

// If both weights are given, one operator with both. Otherwise one with the numbers 1 and 0, and a map for the weight
// that is given.
Value call_layernorm(const FunctionCall& call, OperatorKind kind) {
  const std::optional<NormArguments> norm = norm_arguments(call, 1);
  if (!norm) return Value::broken();
  const std::optional<std::vector<bool>> axes = call.normalized_axes(3, norm->view->axes.size());
  if (!axes) return Value::broken();
  if (norm->weight != nullptr && norm->bias != nullptr) {
    return call.builder.normalize(kind, *norm->view, *axes, {*norm->weight, *norm->bias}, norm->epsilon,
                                  call.location());
  }
  return scaled_and_shifted(call, standardized(call, *norm, *axes), *axes, *norm);
}

Value call_rmsnorm(const FunctionCall& call, OperatorKind kind) {
  const OptionalTensor weight = optional_tensor(call, 1);
  const std::optional<double> epsilon = weight.valid ? call.number(3, 1e-6) : std::nullopt;
  const View* const view = epsilon ? call.tensor(0) : nullptr;
  if (view == nullptr) return Value::broken();
  const std::optional<std::vector<bool>> axes = call.normalized_axes(2, view->axes.size());
  if (!axes) return Value::broken();
  const View factor = weight.view != nullptr ? *weight.view : call.builder.constant(1).view;
  return call.builder.normalize(kind, *view, *axes, {factor}, *epsilon, call.location());
}

// The statistics are those of the batch: over all axes but the channels'.
Value call_batchnorm(const FunctionCall& call, OperatorKind) {
  const std::optional<NormArguments> norm = norm_arguments(call, 1);
  if (!norm) return Value::broken();
  const std::optional<size_t> axis = channel_axis(call, 3, *norm->view);
  if (!axis) return Value::broken();
  const std::vector<bool> channels = only(*axis, norm->view->axes.size());
  std::vector<bool> others = channels;
  others.flip();
  return scaled_and_shifted(call, standardized(call, *norm, others), channels, *norm);
}

// The statistics are those of a group of channels of one element of the batch (axis 0).
Value call_groupnorm(const FunctionCall& call, OperatorKind) {
  const std::optional<int64_t> groups = call.integer(1, 1);
  const std::optional<NormArguments> norm = norm_arguments(call, 2);
  if (!groups || !norm) return Value::broken();
  const size_t rank = norm->view->axes.size();
  const std::optional<size_t> axis = channel_axis(call, 4, *norm->view);
  if (!axis) return Value::broken();
  const int64_t extent = call.builder.extent(*norm->view, *axis);
  if (*axis == 0 || *groups < 1 || extent % *groups != 0) {
    return call.report(concat(extent, " channels cannot form ", *groups, " groups"),
                       "choose a number of groups that divides the channels; axis 0 is the batch");
  }
  if (*groups != 1 && *groups != extent) {
    return scaled_and_shifted(call, standardized_in_groups(call, *norm, *axis, *groups), only(*axis, rank), *norm);
  }
  std::vector<bool> normalized(rank, true);
  normalized[0] = false;
  if (*groups != 1) normalized[*axis] = false;
  if (std::count(normalized.begin(), normalized.end(), true) == 0) {
    return call.report("each group of this groupnorm is a single element", "choose fewer groups");
  }
  return scaled_and_shifted(call, standardized(call, *norm, normalized), only(*axis, rank), *norm);
}

}  // namespace millrace
