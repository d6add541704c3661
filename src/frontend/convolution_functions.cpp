// Convolutions and pooling: padding is a join, windows are a view, and a product or a reduction runs over them.
#include <limits>

#include "base/text.h"
#include "frontend/einsum.h"
#include "frontend/function_handlers.h"
#include "frontend/shape_call.h"
#include "frontend/views.h"

namespace millrace {
namespace {

// How windows move along each of the last axes.
struct WindowSteps {
  int64_t stride = 1;
  int64_t padding = 0;  // positions before and after the axis
  double outside = 0;   // the padding's elements
};

std::optional<WindowSteps> window_steps(const FunctionCall& call, size_t stride, size_t padding, int64_t no_stride) {
  const std::optional<int64_t> step = call.integer(stride, no_stride);
  const std::optional<int64_t> width = step ? call.integer(padding, 0) : std::nullopt;
  if (!width) return std::nullopt;
  if (*step >= 1 && *width >= 0 && *step <= kMaxElements && *width <= kMaxElements) return WindowSteps{*step, *width};
  call.report(concat("'", call.expression.text, "' has stride ", *step, " and padding ", *width),
              "write a stride of at least 1 and a padding of at least 0");
  return std::nullopt;
}

std::optional<View> padded(const FunctionCall& call, const View& view, size_t first, const WindowSteps& steps) {
  if (steps.padding == 0) return view;
  std::vector<int64_t> extents = extents_of(view, call.builder);
  Builder::Placed input{view, std::vector<int64_t>(extents.size(), 0)};
  for (size_t axis = first; axis < extents.size(); ++axis) {
    input.at[axis] = steps.padding;
    extents[axis] += 2 * steps.padding;
  }
  const Value joined = call.builder.join({input}, extents, steps.outside, call.location());
  return joined.kind == ValueKind::view ? std::optional(joined.view) : std::nullopt;
}

// Windows of these extents along the last axes; the positions within a window become new last axes.
std::optional<View> windows_of(const FunctionCall& call, const View& view, const std::vector<int64_t>& extents,
                               const WindowSteps& steps) {
  const size_t first = view.axes.size() - extents.size();
  for (size_t k = 0; k < extents.size(); ++k) {
    const int64_t extent = call.builder.extent(view, first + k) + 2 * steps.padding;
    if (extents[k] >= 1 && extents[k] <= extent) continue;
    call.report(concat("a window of extent ", extents[k], " does not fit an axis of extent ", extent,
                       steps.padding > 0 ? ", padding included" : ""),
                "choose a smaller window or a larger padding");
    return std::nullopt;
  }
  std::optional<View> windows = padded(call, view, first, steps);
  for (size_t k = 0; windows && k < extents.size(); ++k) {
    const int64_t count = (call.builder.extent(*windows, first + k) - extents[k]) / steps.stride + 1;
    windows = windowed(*windows, first + k, extents[k], call.builder, call.location());
    if (windows) windows = sliced(*windows, first + k, {0, steps.stride, count}, call.builder, call.location());
  }
  return windows;
}

// The shapes that a convolution needs, as its messages show them.
struct ConvolutionForm {
  size_t x_rank;
  size_t weight_rank;
  size_t channels;  // the weight's axis of x's channels
  std::string_view shapes;
  std::string_view subscripts;
};

bool check_shapes(const FunctionCall& call, const View& x, const View& weight, const ConvolutionForm& form) {
  const bool fits = x.axes.size() == form.x_rank && weight.axes.size() == form.weight_rank &&
                    call.builder.extent(x, 1) == call.builder.extent(weight, form.channels);
  if (!fits) {
    call.report(concat("'", call.expression.text, "' of ", call.builder.shape(x), " and a weight ",
                       call.builder.shape(weight), " is not defined"),
                concat("it needs ", form.shapes));
  }
  return fits;
}

bool are_numbers(const FunctionCall& call, const View& view) {
  if (call.builder.graph.tensor(view.tensor).dtype != DType::boolean) return true;
  call.report("a comparison is not a number", "choose with np.where(a < b, x, y)");
  return false;
}

Value with_bias(const FunctionCall& call, const Value& value) {
  if (value.kind != ValueKind::view || !call.arguments[2]) return value;
  const View* const bias = call.tensor(2);
  if (bias == nullptr) return Value::broken();
  std::vector<bool> channels(value.view.axes.size(), false);
  channels[1] = true;
  if (!call.builder.check_weight(*bias, value.view, channels, call.location())) return Value::broken();
  return call.map(OperatorKind::add, {value, Value::of(call.builder.spread(*bias, channels))});
}

Value convolved(const FunctionCall& call, const ConvolutionForm& form) {
  const View* const x = call.tensor(0);
  const View* const weight = x != nullptr ? call.tensor(1) : nullptr;
  const std::optional<WindowSteps> steps = weight != nullptr ? window_steps(call, 3, 4, 1) : std::nullopt;
  if (!steps || !are_numbers(call, *x) || !are_numbers(call, *weight)) return Value::broken();
  if (!check_shapes(call, *x, *weight, form)) return Value::broken();
  std::vector<int64_t> extents;
  for (size_t axis = form.channels + 1; axis < form.weight_rank; ++axis)
    extents.push_back(call.builder.extent(*weight, axis));
  const std::optional<View> windows = windows_of(call, *x, extents, *steps);
  if (!windows) return Value::broken();
  return with_bias(call, lower_einsum(std::string(form.subscripts), {*windows, *weight}, {}, call.location(),
                                      call.builder, call.diagnostics));
}

Value pooled(const FunctionCall& call, OperatorKind kind, double outside) {
  const View* const x = call.tensor(0);
  const std::optional<int64_t> size = x != nullptr ? call.integer(1, 1) : std::nullopt;
  std::optional<WindowSteps> steps = size ? window_steps(call, 2, 3, *size) : std::nullopt;
  if (!steps || !are_numbers(call, *x)) return Value::broken();
  steps->outside = outside;
  if (x->axes.size() != 4) {
    return call.report(concat("'", call.expression.text, "' of ", call.builder.shape(*x), " is not defined"),
                       "it needs x[B, C, Y, X]");
  }
  if (*size >= 1 && 2 * steps->padding > *size) {
    return call.report(concat("a padding of ", steps->padding, " is more than half of a window of extent ", *size),
                       "some windows would contain only padding: choose a smaller padding");
  }
  const std::optional<View> windows = windows_of(call, *x, {*size, *size}, *steps);
  if (!windows) return Value::broken();
  return call.builder.reduce(kind, *windows, {false, false, false, false, true, true}, false, call.location());
}

}  // namespace

Value call_conv1d(const FunctionCall& call, OperatorKind) {
  return convolved(call, {3, 3, 1, "x[B, C, T] and weight[O, C, K]", "bctk,ock->bot"});
}

Value call_conv2d(const FunctionCall& call, OperatorKind) {
  return convolved(call, {4, 4, 1, "x[B, C, Y, X] and weight[O, C, K, L]", "bcyxkl,ockl->boyx"});
}

// Along one axis or two: as many as x has after the channels.
Value call_depthwise(const FunctionCall& call, OperatorKind) {
  const View* const x = call.tensor(0);
  if (x == nullptr) return Value::broken();
  constexpr std::string_view kShapes = "x[B, C, T] and weight[C, K], or x[B, C, Y, X] and weight[C, K, L]";
  if (x->axes.size() == 3) return convolved(call, {3, 2, 0, kShapes, "bctk,ck->bct"});
  return convolved(call, {4, 3, 0, kShapes, "bcyxkl,ckl->bcyx"});
}

Value call_max_pool2d(const FunctionCall& call, OperatorKind) {
  return pooled(call, OperatorKind::max, -std::numeric_limits<double>::infinity());
}

Value call_avg_pool2d(const FunctionCall& call, OperatorKind) {
  const Value total = pooled(call, OperatorKind::sum, 0);
  if (total.kind != ValueKind::view) return Value::broken();
  const auto size = static_cast<double>(*call.arguments[1]->integer);
  return call.map(OperatorKind::multiply, {total, Value::of(1 / (size * size))});
}

}  // namespace millrace
