#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "frontend/function_handlers.h"
#include "frontend/views.h"

namespace millrace {
namespace {

constexpr double kMostFactors = 64;  // of a product: each is a multiplication of its own

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

// The order of a norm: 1 or 2, the default; for a matrix only the default, the root of the sum of squares.
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

// Positions first, first + 1, … of an axis. A single position drops the axis, unless it is kept.
Value chunk_of(const FunctionCall& call, const Value& value, size_t axis, const AxisSlice& slice, KeptAxes kept) {
  const std::optional<View> chunk = sliced(value.view, axis, slice, call.builder, call.location());
  if (!chunk) return Value::broken();
  if (kept == KeptAxes::of_extent_one || slice.count > 1) return Value::of(*chunk);
  std::vector<size_t> others(chunk->axes.size());
  std::iota(others.begin(), others.end(), 0);
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(axis));
  return Value::of(permuted(*chunk, others));
}

Value multiplied(const FunctionCall& call, const Value& a, const Value& b) {
  if (a.kind != ValueKind::view || b.kind != ValueKind::view) return Value::broken();
  return call.map(OperatorKind::multiply, {a, b});
}

// Multiplies the first half of the axis by the second until one position remains; the last of an odd number of
// positions is multiplied at the end.
Value product_along(const FunctionCall& call, Value value, size_t axis, KeptAxes kept) {
  std::vector<Value> rest;
  int64_t extent = call.builder.extent(value.view, axis);
  if (extent == 1) return chunk_of(call, value, axis, {0, 1, 1}, kept);
  while (extent > 1) {
    const int64_t half = extent / 2;
    if (extent % 2 != 0) rest.push_back(chunk_of(call, value, axis, {extent - 1, 1, 1}, kept));
    value = multiplied(call, chunk_of(call, value, axis, {0, 1, half}, kept),
                       chunk_of(call, value, axis, {half, 1, half}, kept));
    if (value.kind != ValueKind::view) return Value::broken();
    extent = half;
  }
  for (const Value& factor : rest) {
    value = multiplied(call, value, factor);
    if (value.kind != ValueKind::view) return Value::broken();
  }
  return value;
}

}  // namespace

Value call_prod(const FunctionCall& call, OperatorKind) {
  const View* const view = call.tensor(0);
  if (view == nullptr) return Value::broken();
  const std::optional<std::vector<bool>> axes = call.axes(1, view->axes.size());
  const std::optional<double> keep_dims = call.number(2, 0);
  if (!axes || !keep_dims) return Value::broken();
  if (call.builder.graph.tensor(view->tensor).dtype == DType::boolean)
    return call.report("a comparison is not a number", "choose with np.where(a < b, x, y)");
  const double factors = points_along(call, *view, *axes);
  if (factors > kMostFactors) {
    return call.report(
        concat("this product has ", factors, " factors"),
        concat("at most ", kMostFactors, " are allowed; of positive numbers write np.exp(np.sum(np.log(x), axis=-1))"));
  }
  Value value = Value::of(*view);
  for (size_t axis = axes->size(); axis-- > 0;) {  // from the last, since axes are dropped
    if (!(*axes)[axis]) continue;
    value = product_along(call, value, axis, *keep_dims != 0 ? KeptAxes::of_extent_one : KeptAxes::dropped);
    if (value.kind != ValueKind::view) return Value::broken();
  }
  return value;
}

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
