// Functions that take integers as positions: np.take, np.take_along_axis, cross_entropy.
#include <algorithm>

#include "base/text.h"
#include "frontend/function_handlers.h"

namespace millrace {
namespace {

// x at the position ids on an axis; the other axes of x and ids are the same, or broadcast.
Value taken_along(const FunctionCall& call, const View& x, const View& ids, size_t axis) {
  Builder::Gather gather;
  gather.table = x;
  gather.axis = axis;
  gather.ids = ids;
  for (size_t k = 0; k < x.axes.size(); ++k) {
    const auto label = static_cast<int>(k);
    const int64_t of_x = call.builder.extent(x, k);
    const int64_t of_ids = call.builder.extent(ids, k);
    if (k != axis && of_x != of_ids && of_x != 1 && of_ids != 1) {
      return call.report(
          concat("shapes ", call.builder.shape(x), " and ", call.builder.shape(ids), " do not broadcast"),
          concat("axis ", k, " is ", of_x, " and ", of_ids));
    }
    const bool from_x = k != axis && of_ids == 1;
    gather.dims.push_back(call.builder.dim_of(from_x ? x : ids, k));
    gather.table_axes.push_back(k == axis || (of_x == 1 && of_ids != 1) ? kFixed : label);
    gather.id_axes.push_back(from_x && of_x != 1 ? kFixed : label);
  }
  return call.builder.gather(std::move(gather), call.location());
}

}  // namespace

Value call_take(const FunctionCall& call, OperatorKind) {
  const View* const x = call.tensor(0);
  const View* const ids = x == nullptr ? nullptr : call.tensor(1);
  if (ids == nullptr) return Value::broken();
  if (!call.arguments[2]) return call.report("np.take without an axis is not covered", "write np.take(x, ids, axis=0)");
  const std::optional<size_t> axis = call.axis(*call.arguments[2], x->axes.size());
  return axis ? call.builder.gather_along(*x, *axis, *ids, call.location()) : Value::broken();
}

Value call_take_along_axis(const FunctionCall& call, OperatorKind) {
  const View* const x = call.tensor(0);
  const View* const ids = x == nullptr ? nullptr : call.tensor(1);
  if (ids == nullptr) return Value::broken();
  const std::optional<size_t> axis = call.axis(*call.arguments[2], x->axes.size());
  if (!axis) return Value::broken();
  if (ids->axes.size() != x->axes.size()) {
    return call.report(concat("the indices have ", ids->axes.size(), " axes, the tensor ", x->axes.size()),
                       "both have the same number of axes: add one with ids[..., None]");
  }
  return taken_along(call, *x, *ids, *axis);
}

// The mean of logsumexp(logits) - logits[..., label] over all positions.
Value call_cross_entropy(const FunctionCall& call, OperatorKind) {
  const View* const logits = call.tensor(0);
  const View* const labels = logits == nullptr ? nullptr : call.tensor(1);
  if (labels == nullptr) return Value::broken();
  const size_t rank = logits->axes.size();
  bool fits = rank >= 1 && labels->axes.size() + 1 == rank;
  for (size_t axis = 0; fits && axis + 1 < rank; ++axis)
    fits = call.builder.extent(*logits, axis) == call.builder.extent(*labels, axis);
  if (!fits) {
    return call.report(concat("labels of shape ", call.builder.shape(*labels), " do not fit logits of shape ",
                              call.builder.shape(*logits)),
                       "labels have the axes of the logits except the last, which is that of the classes");
  }
  std::vector<bool> last(rank, false);
  last.back() = true;
  std::vector<bool> marked(rank, true);
  marked.back() = false;
  const Value total = call.builder.reduce(OperatorKind::log_sum_exp, *logits, last, true, call.location());
  if (total.kind != ValueKind::view) return Value::broken();
  const Value chosen = taken_along(call, *logits, call.builder.spread(*labels, marked), rank - 1);
  if (chosen.kind != ValueKind::view) return Value::broken();
  const Value losses = call.map(OperatorKind::subtract, {total, chosen});
  if (losses.kind != ValueKind::view) return Value::broken();
  const double count = points_along(call, losses.view, std::vector<bool>(rank, true));
  const Value sum =
      call.builder.reduce(OperatorKind::sum, losses.view, std::vector<bool>(rank, true), false, call.location());
  if (sum.kind != ValueKind::view) return Value::broken();
  return call.map(OperatorKind::multiply, {sum, Value::of(1 / count)});
}

}  // namespace millrace
