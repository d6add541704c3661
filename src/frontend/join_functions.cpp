#include "frontend/join_functions.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "base/text.h"
#include "frontend/views.h"

namespace millrace {
namespace {

constexpr size_t kMaxJoined = 1024;  // tensors

// Concatenates the views along an axis; all other extents must be equal.
Value concatenated(const ShapeCall& call, const std::vector<View>& views, size_t axis) {
  if (views.size() > kMaxJoined)
    return call.report(concat(views.size(), " tensors are joined"), concat("at most ", kMaxJoined, " are allowed"));
  std::vector<int64_t> extents = extents_of(views[0], call.builder);
  extents[axis] = 0;
  std::vector<Builder::Placed> inputs;
  for (const View& view : views) {
    std::vector<int64_t> here = extents_of(view, call.builder);
    const int64_t length = axis < here.size() ? here[axis] : 0;
    if (axis < here.size()) here[axis] = extents[axis];
    if (here != extents) {
      return call.report(concat("shapes ", call.builder.shape(views[0]), " and ", call.builder.shape(view),
                                " cannot be joined along axis ", axis),
                         "all other extents must be equal");
    }
    std::vector<int64_t> at(extents.size(), 0);
    at[axis] = extents[axis];
    inputs.push_back({view, std::move(at)});
    extents[axis] = checked_add(extents[axis], length).value_or(kMaxElements);
  }
  if (!call.fits(extents)) return Value::broken();
  if (inputs.size() == 1) return Value::of(views[0]);
  return call.builder.join(std::move(inputs), extents, 0, call.location());
}

// The widths before and after each axis.
using Widths = std::vector<std::pair<int64_t, int64_t>>;

std::optional<Widths> pad_widths(const ShapeCall& call, size_t rank) {
  const auto pair_of = [&](const Value& value) -> std::optional<std::pair<int64_t, int64_t>> {
    if (value.kind == ValueKind::number && value.integer) return std::pair(*value.integer, *value.integer);
    if (value.kind != ValueKind::tuple || value.items->empty() || value.items->size() > 2) return std::nullopt;
    const Value& before = value.items->front();
    const Value& after = value.items->back();
    if (!before.integer || !after.integer) return std::nullopt;
    return std::pair(*before.integer, *after.integer);
  };
  const Value& value = *call.arguments[1];
  Widths widths;
  const bool nested =
      value.kind == ValueKind::tuple && !value.items->empty() && value.items->front().kind == ValueKind::tuple;
  for (const Value& item : nested ? *value.items : std::vector<Value>{value}) {
    const auto pair = pair_of(item);
    if (!pair || pair->first < 0 || pair->second < 0) break;
    widths.push_back(*pair);
  }
  if (widths.size() == 1 && (!nested || value.items->size() == 1)) widths.resize(rank, widths[0]);
  if (widths.size() == rank) return widths;
  call.report(concat("'pad' needs the widths before and after each of ", rank, " axes"),
              "write np.pad(x, ((0, 0), (1, 2))), with integers that are not negative");
  return std::nullopt;
}

std::optional<View> rolled(const ShapeCall& call, const View& view, size_t axis, int64_t shift) {
  const int64_t extent = call.builder.extent(view, axis);
  const int64_t first = ((shift % extent) + extent) % extent;  // where the first element goes
  if (first == 0) return view;
  const auto head = sliced(view, axis, {extent - first, 1, first}, call.builder, call.location());
  const auto tail = sliced(view, axis, {0, 1, extent - first}, call.builder, call.location());
  if (!head || !tail) return std::nullopt;
  const Value result = concatenated(call, {*head, *tail}, axis);
  return result.kind == ValueKind::view ? std::optional(result.view) : std::nullopt;
}

}  // namespace

std::optional<View> raveled(const View& view, const ShapeCall& call) {
  const std::vector<int64_t> extents = extents_of(view, call.builder);
  return reshaped(view, {std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>())},
                  call.builder, call.location());
}

Value call_concatenate(const ShapeCall& call) {
  std::optional<std::vector<View>> views = call.tensors(0);
  if (!views) return Value::broken();
  if (views->front().axes.empty())
    return call.report("scalars cannot be concatenated", "write np.stack([a, b]) for scalars");
  for (View& view : *views) {
    const std::optional<View> flat = call.is_none(1) ? raveled(view, call) : view;
    if (!flat) return Value::broken();
    view = *flat;
  }
  const std::optional<size_t> axis = call.is_none(1) ? 0 : call.one_axis(1, views->front().axes.size(), 0);
  return axis ? concatenated(call, *views, *axis) : Value::broken();
}

Value call_stack(const ShapeCall& call) {
  std::optional<std::vector<View>> views = call.tensors(0);
  if (!views) return Value::broken();
  const size_t rank = views->front().axes.size();
  const std::optional<size_t> axis = call.one_axis(1, rank + 1, 0);
  if (!axis) return Value::broken();
  for (const View& view : *views) {
    if (extents_of(view, call.builder) != extents_of(views->front(), call.builder)) {
      return call.report(concat("shapes ", call.builder.shape(views->front()), " and ", call.builder.shape(view),
                                " cannot be stacked"),
                         "all shapes must be equal");
    }
  }
  for (View& view : *views) view = with_added_axis(std::move(view), *axis);
  return concatenated(call, *views, *axis);
}

Value call_pad(const ShapeCall& call) {
  const std::optional<View> view = call.tensor(0);
  if (!view) return Value::broken();
  double outside = 0;
  if (call.given(3)) {
    if (call.arguments[3]->kind != ValueKind::number)
      return call.report("the constant of 'pad' must be one number", "write constant_values=0");
    outside = call.arguments[3]->number;
  }
  const std::optional<Widths> widths = pad_widths(call, view->axes.size());
  if (!widths) return Value::broken();
  std::vector<int64_t> extents = extents_of(*view, call.builder);
  Builder::Placed input{*view, {}};
  bool pads = false;
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    const auto [before, after] = (*widths)[axis];
    pads = pads || before > 0 || after > 0;
    input.at.push_back(before);
    const std::optional<int64_t> sum = checked_add(before, after);
    extents[axis] = sum ? checked_add(extents[axis], *sum).value_or(kMaxElements) : kMaxElements;
  }
  if (!call.fits(extents)) return Value::broken();
  return pads ? call.builder.join({input}, extents, outside, call.location()) : Value::of(*view);
}

Value call_roll(const ShapeCall& call) {
  const std::optional<View> argument = call.tensor(0);
  std::optional<std::vector<int64_t>> shifts = call.integers(1);
  if (!argument || !shifts) return Value::broken();
  std::optional<View> view = call.given(2) ? argument : raveled(*argument, call);
  if (!view) return Value::broken();
  const std::optional<std::vector<size_t>> axes = call.axes(2, view->axes.size(), {0});
  if (!axes) return Value::broken();
  if (shifts->size() == 1) shifts->resize(axes->size(), shifts->front());
  if (shifts->size() != axes->size())
    return call.report(concat(shifts->size(), " shifts for ", axes->size(), " axes"), "give one shift for each axis");
  for (size_t k = 0; view && k < axes->size(); ++k) view = rolled(call, *view, (*axes)[k], (*shifts)[k]);
  if (view && !call.given(2))
    view = reshaped(*view, extents_of(*argument, call.builder), call.builder, call.location());
  return view ? Value::of(*view) : Value::broken();
}

}  // namespace millrace
