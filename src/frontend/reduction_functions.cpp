#include <algorithm>

#include "base/text.h"
#include "frontend/function_handlers.h"

namespace millrace {
namespace {

enum class KeptAxes { dropped, of_extent_one };

// Σ of the value over the marked axes, times `factor`.
Value scaled_sum(const FunctionCall& call, const Value& value, const std::vector<bool>& axes, KeptAxes kept,
                 double factor) {
  if (value.kind != ValueKind::view) return Value::broken();
  const Value total =
      call.builder.reduce(OperatorKind::sum, value.view, axes, kept == KeptAxes::of_extent_one, call.location());
  if (total.kind != ValueKind::view) return Value::broken();
  return factor == 1 ? total : call.map(OperatorKind::multiply, {total, Value::of(factor)});
}

Value variance(const FunctionCall& call) {
  const View* const view = call.tensor(0);
  if (view == nullptr) return Value::broken();
  const std::optional<std::vector<bool>> axes = call.axes(1, view->axes.size());
  const std::optional<double> ddof = call.number(2, 0);
  const std::optional<double> keep_dims = call.number(3, 0);
  if (!axes || !ddof || !keep_dims) return Value::broken();
  const double count = points_along(call, *view, *axes);
  if (!(count - *ddof > 0)) {
    return call.report(concat("'", call.expression.text, "' divides by ", count, " - ", *ddof),
                       "choose a ddof that is less than the number of elements");
  }
  const Value mean = scaled_sum(call, Value::of(*view), *axes, KeptAxes::of_extent_one, 1 / count);
  if (mean.kind != ValueKind::view) return Value::broken();
  const Value centred = call.map(OperatorKind::subtract, {Value::of(*view), mean});
  if (centred.kind != ValueKind::view) return Value::broken();
  const Value squares = call.map(OperatorKind::power, {centred}, 2);
  return scaled_sum(call, squares, *axes, *keep_dims != 0 ? KeptAxes::of_extent_one : KeptAxes::dropped,
                    1 / (count - *ddof));
}

// 1 or 2, the default; of a matrix only the default, the root of the sum of squares.
std::optional<double> order_of_norm(const FunctionCall& call, size_t axes) {
  const std::optional<double> order = call.number(1, 2);
  const bool given = call.arguments[1].has_value();
  if (order && (*order == 1 || *order == 2) && (!given || axes == 1)) return order;
  if (order) {
    call.report(concat("np.linalg.norm of order ", *order, " over ", axes, " axes is not supported"),
                "over one axis write ord=1 or ord=2; over two, or all, omit ord");
  }
  return std::nullopt;
}

}  // namespace

Value call_reduction(const FunctionCall& call, OperatorKind kind) {
  const View* const view = call.tensor(0);
  if (view == nullptr) return Value::broken();
  const std::optional<std::vector<bool>> axes = call.axes(1, view->axes.size());
  const std::optional<double> keep_dims = call.number(2, 0);
  if (!axes || !keep_dims) return Value::broken();
  return call.builder.reduce(kind, *view, *axes, *keep_dims != 0, call.location());
}

Value call_mean(const FunctionCall& call, OperatorKind) {
  const Value total = call_reduction(call, OperatorKind::sum);
  if (total.kind != ValueKind::view) return Value::broken();
  const View& view = call.arguments[0]->view;
  const double count = points_along(call, view, *call.axes(1, view.axes.size()));
  return call.builder.map(OperatorKind::multiply, {total, Value::of(1 / count)}, call.location());
}

Value call_var(const FunctionCall& call, OperatorKind) { return variance(call); }

Value call_std(const FunctionCall& call, OperatorKind) {
  const Value found = variance(call);
  return found.kind == ValueKind::view ? call.map(OperatorKind::sqrt, {found}) : Value::broken();
}

Value call_norm(const FunctionCall& call, OperatorKind) {
  const View* const view = call.tensor(0);
  if (view == nullptr) return Value::broken();
  const std::optional<std::vector<bool>> axes = call.axes(2, view->axes.size());
  const std::optional<double> keep_dims = call.number(3, 0);
  if (!axes || !keep_dims) return Value::broken();
  const auto count = static_cast<size_t>(std::count(axes->begin(), axes->end(), true));
  const std::optional<double> order = order_of_norm(call, count);
  if (!order) return Value::broken();
  const KeptAxes kept = *keep_dims != 0 ? KeptAxes::of_extent_one : KeptAxes::dropped;
  const Value magnitudes = *order == 1 ? call.map(OperatorKind::absolute, {Value::of(*view)})
                                       : call.map(OperatorKind::power, {Value::of(*view)}, 2);
  const Value total = scaled_sum(call, magnitudes, *axes, kept, 1);
  if (*order == 1 || total.kind != ValueKind::view) return total;
  return call.map(OperatorKind::sqrt, {total});
}

Value call_logsumexp(const FunctionCall& call, OperatorKind kind) {
  const View* const view = call.tensor(0);
  if (view == nullptr) return Value::broken();
  const std::optional<std::vector<bool>> axes = call.normalized_axes(1, view->axes.size());
  const std::optional<double> keep_dims = call.number(2, 0);
  if (!axes || !keep_dims) return Value::broken();
  return call.builder.reduce(kind, *view, *axes, *keep_dims != 0, call.location());
}

}  // namespace millrace
