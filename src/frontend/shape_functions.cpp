#include "frontend/shape_functions.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/checked.h"
#include "base/text.h"
#include "frontend/join_functions.h"
#include "frontend/shape_call.h"
#include "frontend/views.h"

namespace millrace {
namespace {

std::vector<size_t> all_axes(const View& view) {
  std::vector<size_t> axes(view.axes.size());
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

Value as_value(const std::optional<View>& view) { return view ? Value::of(*view) : Value::broken(); }

// The shape with its one -1 replaced by what is left of the elements.
std::optional<std::vector<int64_t>> completed_shape(const ShapeCall& call, const View& view,
                                                    std::vector<int64_t> shape) {
  const std::vector<int64_t> old = extents_of(view, call.builder);
  const int64_t elements = std::accumulate(old.begin(), old.end(), int64_t{1}, std::multiplies<>());
  std::optional<int64_t> product = 1;
  for (const int64_t extent : shape) {
    if (product && extent != -1) product = extent < 1 ? std::nullopt : checked_multiply(*product, extent);
  }
  const auto unknown = std::count(shape.begin(), shape.end(), -1);
  const bool divides = product && elements % *product == 0 && unknown <= 1;
  if (divides && unknown == 1) *std::find(shape.begin(), shape.end(), -1) = elements / *product;
  if (divides && (unknown == 1 || *product == elements)) return shape;
  call.report(concat("a tensor of shape ", call.builder.shape(view), " has ", elements,
                     " elements and cannot be reshaped to [", join(shape, ", "), "]"),
              "the new extents must have the same product; one of them may be -1");
  return std::nullopt;
}

Value call_reshape(const ShapeCall& call) {
  const std::optional<View> view = call.tensor(0);
  const std::optional<std::vector<int64_t>> wanted = call.integers(1);
  if (!view || !wanted) return Value::broken();
  if (call.given(2)) return call.report("'order' is not supported", "transpose first");
  const std::optional<std::vector<int64_t>> shape = completed_shape(call, *view, *wanted);
  if (!shape || !call.fits(*shape)) return Value::broken();
  return as_value(reshaped(*view, *shape, call.builder, call.location()));
}

Value call_ravel(const ShapeCall& call) {
  const std::optional<View> view = call.tensor(0);
  return view ? as_value(raveled(*view, call)) : Value::broken();
}

Value call_transpose(const ShapeCall& call) {
  const std::optional<View> view = call.tensor(0);
  if (!view) return Value::broken();
  std::vector<size_t> reversed = all_axes(*view);
  std::reverse(reversed.begin(), reversed.end());
  const std::optional<std::vector<size_t>> order = call.axes(1, view->axes.size(), reversed);
  if (!order) return Value::broken();
  if (order->size() != view->axes.size()) {
    return call.report(concat(order->size(), " axes for a tensor of shape ", call.builder.shape(*view)),
                       "name each axis once");
  }
  return Value::of(permuted(*view, *order));
}

Value call_swapaxes(const ShapeCall& call) {
  const std::optional<View> view = call.tensor(0);
  const std::optional<int64_t> first = call.integer(1);
  const std::optional<int64_t> second = call.integer(2);
  if (!view || !first || !second) return Value::broken();
  const std::optional<size_t> a = call.axis(*first, view->axes.size());
  const std::optional<size_t> b = call.axis(*second, view->axes.size());
  if (!a || !b) return Value::broken();
  std::vector<size_t> order = all_axes(*view);
  std::swap(order[*a], order[*b]);
  return Value::of(permuted(*view, order));
}

Value call_moveaxis(const ShapeCall& call) {
  const std::optional<View> view = call.tensor(0);
  if (!view) return Value::broken();
  const std::optional<std::vector<size_t>> from = call.axes(1, view->axes.size(), {});
  const std::optional<std::vector<size_t>> to = call.axes(2, view->axes.size(), {});
  if (!from || !to) return Value::broken();
  if (from->size() != to->size())
    return call.report(concat(from->size(), " axes move to ", to->size(), " places"), "name one place for each axis");
  std::vector<std::pair<size_t, size_t>> moves;  // place, axis
  for (size_t k = 0; k < to->size(); ++k) moves.emplace_back((*to)[k], (*from)[k]);
  std::sort(moves.begin(), moves.end());
  std::vector<size_t> order;
  for (const size_t axis : all_axes(*view)) {
    if (std::find(from->begin(), from->end(), axis) == from->end()) order.push_back(axis);
  }
  for (const auto& [place, axis] : moves) order.insert(order.begin() + static_cast<std::ptrdiff_t>(place), axis);
  return Value::of(permuted(*view, order));
}

Value call_expand_dims(const ShapeCall& call) {
  const std::optional<View> view = call.tensor(0);
  const std::optional<std::vector<int64_t>> added = call.integers(1);
  if (!view || !added) return Value::broken();
  std::optional<std::vector<size_t>> axes = call.axes(1, view->axes.size() + added->size(), {});
  if (!axes || !call.fits(std::vector<int64_t>(view->axes.size() + added->size(), 1))) return Value::broken();
  std::sort(axes->begin(), axes->end());
  View result = *view;
  for (const size_t axis : *axes) result = with_added_axis(std::move(result), axis);
  return Value::of(std::move(result));
}

Value call_squeeze(const ShapeCall& call) {
  const std::optional<View> view = call.tensor(0);
  if (!view) return Value::broken();
  std::vector<size_t> ones = all_axes(*view);
  std::erase_if(ones, [&](size_t axis) { return call.builder.extent(*view, axis) != 1; });
  const std::optional<std::vector<size_t>> dropped = call.axes(1, view->axes.size(), ones);
  if (!dropped) return Value::broken();
  std::vector<size_t> kept = all_axes(*view);
  for (const size_t axis : *dropped) {
    if (call.builder.extent(*view, axis) != 1) {
      return call.report(concat("axis ", axis, " of shape ", call.builder.shape(*view), " is not of extent one"),
                         "take one position with an integer index, or reduce the axis");
    }
    std::erase(kept, axis);
  }
  return Value::of(permuted(*view, kept));
}

Value call_broadcast_to(const ShapeCall& call) {
  const bool number = call.arguments[0]->kind == ValueKind::number;
  const std::optional<View> view =
      number ? std::optional(call.builder.constant(call.arguments[0]->number).view) : call.tensor(0);
  const std::optional<std::vector<int64_t>> shape = call.integers(1);
  if (!view || !shape) return Value::broken();
  const auto mismatch = [&] {
    return call.report(concat("shape ", call.builder.shape(*view), " does not broadcast to [", join(*shape, ", "), "]"),
                       "axes are aligned from the right, and only an axis of extent one is repeated");
  };
  if (shape->size() < view->axes.size()) return mismatch();
  if (!call.fits(std::vector<int64_t>(shape->size(), 1))) return Value::broken();
  View result = *view;
  while (result.axes.size() < shape->size()) result = with_added_axis(result, 0);
  for (size_t axis = 0; axis < shape->size(); ++axis) {
    const int64_t here = call.builder.extent(result, axis);
    if ((*shape)[axis] < 1 || (here != 1 && here != (*shape)[axis])) return mismatch();
  }
  if (!call.fits(*shape)) return Value::broken();
  for (size_t axis = 0; axis < shape->size(); ++axis) {
    const int64_t extent = (*shape)[axis];
    if (call.builder.extent(result, axis) == extent) continue;
    const std::optional<DimId> size = call.builder.size_dim(extent, result);
    const Part part{size ? *size : call.builder.dim(concat(extent), extent), extent};
    result = broadcast_along(std::move(result), axis, part, BroadcastPlace::outermost);
  }
  return Value::of(std::move(result));
}

// `times` repetitions of the axis; nothing after an error.
std::optional<View> repeated(const ShapeCall& call, const View& view, size_t axis, int64_t times,
                             BroadcastPlace place) {
  if (times < 1) {
    call.report(concat("'", call.expression.text, "' repeats ", times, " times"), "repeat at least once");
    return std::nullopt;
  }
  std::vector<int64_t> extents = extents_of(view, call.builder);
  const std::optional<int64_t> extent = checked_multiply(extents[axis], times);
  extents[axis] = extent.value_or(kMaxElements + 1);
  if (!call.fits(extents)) return std::nullopt;
  return broadcast_along(view, axis, {call.builder.dim(concat(times), times), times}, place);
}

Value call_repeat(const ShapeCall& call) {
  const std::optional<View> argument = call.tensor(0);
  const std::optional<int64_t> times = call.integer(1);
  if (!argument || !times) return Value::broken();
  const std::optional<View> view = call.given(2) ? argument : raveled(*argument, call);
  if (!view) return Value::broken();
  const std::optional<size_t> axis = call.given(2) ? call.one_axis(2, view->axes.size(), 0) : 0;
  if (!axis) return Value::broken();
  return as_value(repeated(call, *view, *axis, *times, BroadcastPlace::innermost));
}

Value call_tile(const ShapeCall& call) {
  const std::optional<View> argument = call.tensor(0);
  std::optional<std::vector<int64_t>> times = call.integers(1);
  if (!argument || !times || !call.fits(std::vector<int64_t>(times->size(), 1))) return Value::broken();
  std::optional<View> view = argument;
  while (view->axes.size() < times->size()) view = with_added_axis(*view, 0);
  times->insert(times->begin(), view->axes.size() - times->size(), 1);
  for (size_t axis = 0; view && axis < times->size(); ++axis)
    view = repeated(call, *view, axis, (*times)[axis], BroadcastPlace::outermost);
  return as_value(view);
}

Value call_flip(const ShapeCall& call) {
  const std::optional<View> view = call.tensor(0);
  if (!view) return Value::broken();
  const std::optional<std::vector<size_t>> axes = call.axes(1, view->axes.size(), all_axes(*view));
  if (!axes) return Value::broken();
  View result = *view;
  for (const size_t axis : *axes) result = flipped(std::move(result), axis);
  return Value::of(std::move(result));
}

Value call_windows(const ShapeCall& call) {
  std::optional<View> view = call.tensor(0);
  const std::optional<std::vector<int64_t>> windows = call.integers(1);
  if (!view || !windows) return Value::broken();
  const std::optional<std::vector<size_t>> axes = call.axes(2, view->axes.size(), all_axes(*view));
  if (!axes) return Value::broken();
  if (axes->size() != windows->size())
    return call.report(concat(windows->size(), " windows for ", axes->size(), " axes"),
                       "give one window for each axis, or name the axes with axis=");
  for (size_t k = 0; view && k < axes->size(); ++k) {
    const int64_t extent = call.builder.extent(*view, (*axes)[k]);
    if ((*windows)[k] < 1 || (*windows)[k] > extent) {
      return call.report(concat("a window of ", (*windows)[k], " does not fit an axis of extent ", extent),
                         concat("choose a window of 1 to ", extent, ", or pad the axis first"));
    }
    view = windowed(*view, (*axes)[k], (*windows)[k], call.builder, call.location());
    if (view && !call.fits(extents_of(*view, call.builder))) return Value::broken();
  }
  return as_value(view);
}

Value call_split(const ShapeCall& call) {
  const std::optional<View> view = call.tensor(0);
  if (!view) return Value::broken();
  const std::optional<size_t> axis = call.one_axis(2, view->axes.size(), 0);
  const std::optional<std::vector<int64_t>> bounds = call.integers(1);
  if (!axis || !bounds) return Value::broken();
  const int64_t extent = call.builder.extent(*view, *axis);
  std::vector<int64_t> starts = {0};
  if (call.arguments[1]->kind == ValueKind::number) {
    const int64_t sections = bounds->front();
    if (sections < 1 || extent % sections != 0) {
      return call.report(concat("an axis of extent ", extent, " cannot be split into ", sections, " equal sections"),
                         "choose a divisor, or give the positions to split at: np.split(x, [a, b])");
    }
    for (int64_t k = 1; k < sections; ++k) starts.push_back(k * (extent / sections));
  } else {
    for (const int64_t bound : *bounds) starts.push_back(bound < 0 ? bound + extent : bound);
  }
  starts.push_back(extent);
  std::vector<Value> sections;
  for (size_t k = 0; k + 1 < starts.size(); ++k) {
    if (starts[k] < 0 || starts[k] >= starts[k + 1]) {
      return call.report(
          concat("a section from ", starts[k], " to ", starts[k + 1], " of extent ", extent, " is empty"),
          "give positions inside the axis, in ascending order");
    }
    sections.push_back(
        as_value(sliced(*view, *axis, {starts[k], 1, starts[k + 1] - starts[k]}, call.builder, call.location())));
  }
  return Value::of(std::move(sections));
}

struct ShapeSignature {
  std::string_view name;
  std::string_view parameters;  // separated by spaces; those after '|' are optional
  Value (*handler)(const ShapeCall& call);
  bool many_integers = false;
};

constexpr auto kShapeSignatures = std::to_array<ShapeSignature>({
    {"reshape", "a shape |order", call_reshape, true},
    {"ravel", "a", call_ravel},
    {"flatten", "a", call_ravel},
    {"transpose", "a |axes", call_transpose, true},
    {"swapaxes", "a axis1 axis2", call_swapaxes},
    {"moveaxis", "a source destination", call_moveaxis},
    {"expand_dims", "a axis", call_expand_dims},
    {"squeeze", "a |axis", call_squeeze},
    {"broadcast_to", "array shape", call_broadcast_to},
    {"concatenate", "arrays |axis", call_concatenate},
    {"stack", "arrays |axis", call_stack},
    {"split", "ary indices_or_sections |axis", call_split},
    {"pad", "array pad_width |mode constant_values", call_pad},
    {"roll", "a shift |axis", call_roll},
    {"flip", "m |axis", call_flip},
    {"repeat", "a repeats |axis", call_repeat},
    {"tile", "A reps", call_tile},
    {"sliding_window_view", "x window_shape |axis", call_windows},
});

const ShapeSignature* shape_signature(std::string_view name) {
  const auto* const found = std::find_if(kShapeSignatures.begin(), kShapeSignatures.end(),
                                         [&](const ShapeSignature& s) { return s.name == name; });
  return found == kShapeSignatures.end() ? nullptr : found;
}

}  // namespace

bool is_shape_function(const std::string& name) { return shape_signature(name) != nullptr; }

std::vector<std::string> shape_functions() {
  std::vector<std::string> names;
  for (const ShapeSignature& signature : kShapeSignatures) names.emplace_back(signature.name);
  return names;
}

Value call_shape_function(const Expression& call, const std::vector<Value>& arguments, Builder& builder,
                          Diagnostics& diagnostics) {
  const ShapeSignature& signature = *shape_signature(call.text);
  ShapeCall bound{call, builder, diagnostics, {}, {}, {}};
  size_t required = 0;
  bool optional = false;
  for (std::string& name : split(signature.parameters, ' ')) {
    optional = optional || name.front() == '|';
    if (name.front() == '|') name.erase(0, 1);
    if (!optional) ++required;
    bound.parameters.push_back(std::move(name));
  }
  if (!bound.bind(arguments, required, signature.many_integers)) return Value::broken();
  return signature.handler(bound);
}

}  // namespace millrace
