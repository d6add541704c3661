// The builder's joins: concatenation and padding.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "frontend/builder.h"

namespace millrace {
namespace {

constexpr double kModerate = 0x1p60;  // positions below it can be added

using Placed = Builder::Placed;
using JoinedAxis = Builder::JoinedAxis;

// The digits that all inputs have on this axis; nothing if an input has digits that do not fit.
std::optional<SplitPoints> joined_points(const std::vector<Placed>& inputs, size_t axis, int64_t extent) {
  SplitPoints points = {1};
  for (const Placed& input : inputs) {
    SplitPoints here = split_points(input.view, input.view.axes[axis]);
    if (here.size() > 1) here.pop_back();
    const std::optional<SplitPoints> both = common_points(points, here);
    if (!both) return std::nullopt;
    points = *both;
  }
  for (const Placed& input : inputs) {
    const int64_t inside = extent_of(input.view, input.view.axes[axis]);
    for (const int64_t point : points) {
      if (inside % point != 0 || input.at[axis] % point != 0) return std::nullopt;
    }
  }
  if (extent % points.back() != 0) return std::nullopt;
  if (extent > points.back()) points.push_back(extent);
  return points;
}

// Where an input is in its tensor at a point of the joined space.
Access placed_access(const Placed& input, const std::vector<JoinedAxis>& axes) {
  std::vector<Position> by(input.view.parts.size(), kFixed);
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const std::vector<int>& parts = input.view.axes[axis];
    int64_t unit = 1;
    for (size_t k = parts.size(); k-- > 0;) {
      const int64_t next = unit * input.view.parts[as_index(parts[k])].extent;
      const SplitPoints& points = axes[axis].points;
      Position& position = by[as_index(parts[k])];
      if (axes[axis].indices.size() == 1) {
        position = axes[axis].indices[0];
      } else {
        position = digits_between(points, axes[axis].indices, unit, k == 0 ? points.back() : next);
      }
      if (k == 0) position.offset -= input.at[axis] / unit;
      unit = next;
    }
  }
  Access result{input.view.tensor, {}};
  for (const Position& position : input.view.at) result.axes.push_back(substituted(position, by));
  return result;
}

struct Box {
  std::vector<int64_t> first;
  std::vector<int64_t> end;

  bool meets(const Box& other) const {
    for (size_t axis = 0; axis < first.size(); ++axis) {
      if (end[axis] <= other.first[axis] || other.end[axis] <= first[axis]) return false;
    }
    return true;
  }
};

Box box_of(const Placed& input) {
  Box box{input.at, input.at};
  for (size_t axis = 0; axis < box.end.size(); ++axis) box.end[axis] += extent_of(input.view, input.view.axes[axis]);
  return box;
}

// Whether no position of the access is inside its tensor where this index has this value.
bool is_outside(const Graph& graph, const Operator& op, const Access& access, int index, int64_t value) {
  for (size_t axis = 0; axis < access.axes.size(); ++axis) {
    Position position = access.axes[axis];
    position.offset += value * position.stride_along(index);
    std::erase_if(position.terms, [&](const IndexTerm& term) { return term.index == index; });
    const Range range = range_of(graph, op, position);
    if (range.last < 0 || range.first >= graph.extent(graph.tensor(access.tensor).dims[axis])) return true;
  }
  return false;
}

// The part of the result in which the access may be inside its tensor; contains the input's own box.
Box reach_of(const Graph& graph, const Operator& op, const Access& access, const Placed& input,
             const std::vector<JoinedAxis>& axes) {
  Box box = box_of(input);
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const int64_t extent = axes[axis].points.back();
    const int index = axes[axis].indices[0];
    const int64_t unit = extent / graph.extent(op.space[as_index(index)]);
    if (box.first[axis] > 0 && !is_outside(graph, op, access, index, box.first[axis] / unit - 1)) box.first[axis] = 0;
    if (box.end[axis] < extent && !is_outside(graph, op, access, index, box.end[axis] / unit)) box.end[axis] = extent;
  }
  return box;
}

bool same(const Box& a, const Box& b) { return a.first == b.first && a.end == b.end; }

int64_t points_in(const Box& box) {
  int64_t points = 1;
  for (size_t axis = 0; axis < box.first.size(); ++axis) points *= box.end[axis] - box.first[axis];
  return points;
}

// Makes an input that is at one position of one index be outside its tensor at all others: N·(i - at) is added to the
// position on an axis of extent N.
void guard(const Graph& graph, const Operator& op, Access& access, const Placed& input,
           const std::vector<JoinedAxis>& axes) {
  std::vector<size_t> partial;
  const Box box = box_of(input);
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (box.end[axis] - box.first[axis] < axes[axis].points.back()) partial.push_back(axis);
  }
  if (partial.size() != 1 || access.axes.empty()) return;
  const size_t axis = partial[0];
  const int index = axes[axis].indices[0];
  const int64_t unit = axes[axis].points.back() / graph.extent(op.space[as_index(index)]);
  if (box.end[axis] - box.first[axis] != unit) return;
  size_t on = access.axes.size() - 1;  // an axis along the index, if there is one: no index is on two
  for (size_t k = 0; k < access.axes.size(); ++k) {
    if (access.axes[k].stride_along(index) != 0) on = k;
  }
  Position& position = access.axes[on];
  const int64_t extent = graph.extent(graph.tensor(access.tensor).dims[on]);
  if (static_cast<double>(extent) * static_cast<double>(axes[axis].points.back()) > kModerate) return;
  const int64_t step = position.stride_along(index) < 0 ? -extent : extent;
  Position shift({{0, 1}, {1, step}}, -step * (box.first[axis] / unit));
  position = substituted(shift, {position, index});
}

// Whether the positions outside the input's tensor are not too large for arithmetic on them.
bool is_moderate(const Placed& input, const std::vector<JoinedAxis>& axes) {
  std::vector<double> extents(input.view.parts.size(), 1);
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    for (const int part : input.view.axes[axis])
      extents[as_index(part)] = static_cast<double>(axes[axis].points.back());
  }
  return std::all_of(input.view.at.begin(), input.view.at.end(), [&](const Position& axis) {
    double reach = std::abs(static_cast<double>(axis.offset));
    for (const IndexTerm& term : axis.terms)
      reach += std::abs(static_cast<double>(term.stride)) * extents[as_index(term.index)];
    return reach < kModerate;
  });
}

Access guarded_access(const Graph& graph, const Operator& op, const Placed& input,
                      const std::vector<JoinedAxis>& axes) {
  Access access = placed_access(input, axes);
  if (!same(reach_of(graph, op, access, input, axes), box_of(input))) guard(graph, op, access, input, axes);
  return access;
}

}  // namespace

Value Builder::join(std::vector<Placed> inputs, const std::vector<int64_t>& extents, double outside,
                    SourceLocation location) {
  if (!separate(inputs, extents, location)) return Value::broken();
  std::vector<JoinedAxis> axes(extents.size());
  std::vector<Term> terms;
  std::vector<View> views;
  for (const Placed& input : inputs) {
    terms.push_back({input.view, {}});
    for (size_t axis = 0; axis < extents.size(); ++axis) terms.back().labels.push_back(static_cast<int>(axis));
    views.push_back(input.view);
  }
  Space space;
  std::vector<size_t> counts;
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    const auto label = static_cast<int>(axis);
    axes[axis].points = *joined_points(inputs, axis, extents[axis]);
    space.points[label] = axes[axis].points;
    const auto named =
        std::find_if(inputs.begin(), inputs.end(), [&](const Placed& input) { return !is_repeated(input.view, axis); });
    const View& view = named == inputs.end() ? inputs[0].view : named->view;
    add_label(space, label, dim_like(dim_of(view, axis), extents[axis], view), terms);
    axes[axis].indices = space.indices[label];
    counts.push_back(axes[axis].indices.size());
  }
  Operator op;
  op.kind = OperatorKind::join;
  op.value = outside;
  op.space = space.dims;
  op.reduced.resize(op.space.size(), false);
  if (!order_inputs(op, inputs, axes, location)) return Value::broken();
  const bool boolean = graph.tensor(views[0].tensor).dtype == DType::boolean;
  const TensorId output = add_tensor(boolean ? DType::boolean : common_dtype(views), op.space);
  if (boolean) compared_[output] = common_dtype(views);
  op.outputs.push_back({output, in_order(op.space.size())});
  if (!add_operator(std::move(op), location)) return Value::broken();
  return Value::of(grouped(output, counts));
}

// The first input that is inside its tensor at a point is taken. So an input whose access is inside at points where
// another input belongs comes after that one; where there is no such order, an input is copied.
bool Builder::order_inputs(Operator& op, std::vector<Placed>& inputs, const std::vector<JoinedAxis>& axes,
                           SourceLocation location) {
  int64_t missing = 1;  // points outside all inputs
  for (const JoinedAxis& axis : axes) missing *= axis.points.back();
  for (const Placed& input : inputs) missing -= points_in(box_of(input));
  const auto copy = [&](Placed& input) {
    std::vector<DimId> dims;
    for (size_t axis = 0; axis < input.view.axes.size(); ++axis) dims.push_back(dim_of(input.view, axis));
    const std::optional<TensorId> copied = add_copy(input.view, input.view.axes, dims, location);
    if (copied) input.view = whole(*copied);
    return copied.has_value();
  };
  std::vector<Access> accesses;
  std::vector<Box> reaches;
  for (Placed& input : inputs) {
    if (!is_moderate(input, axes) && !copy(input)) return false;
    accesses.push_back(guarded_access(graph, op, input, axes));
    reaches.push_back(reach_of(graph, op, accesses.back(), input, axes));
  }
  std::vector<size_t> left(inputs.size());
  std::iota(left.begin(), left.end(), 0);
  while (!left.empty()) {
    const auto may_be_next = [&](size_t k) {
      if (same(reaches[k], box_of(inputs[k]))) return true;
      if (missing > 0) return false;
      return std::none_of(left.begin(), left.end(),
                          [&](size_t other) { return other != k && reaches[k].meets(box_of(inputs[other])); });
    };
    const auto next = std::find_if(left.begin(), left.end(), may_be_next);
    if (next != left.end()) {
      op.inputs.push_back(accesses[*next]);
      left.erase(next);
      continue;
    }
    const size_t k = left.front();
    if (!copy(inputs[k])) return false;
    accesses[k] = guarded_access(graph, op, inputs[k], axes);
    reaches[k] = reach_of(graph, op, accesses[k], inputs[k], axes);
  }
  return true;
}

// Copies the inputs with merged axes that the join would have to take apart.
bool Builder::separate(std::vector<Placed>& inputs, const std::vector<int64_t>& extents, SourceLocation location) {
  std::vector<bool> unfit(extents.size(), false);
  for (size_t axis = 0; axis < extents.size(); ++axis)
    unfit[axis] = !joined_points(inputs, axis, extents[axis]).has_value();
  for (Placed& input : inputs) {
    std::vector<bool> copied = unfit;
    for (size_t axis = 0; axis < extents.size(); ++axis)
      copied[axis] = copied[axis] && input.view.axes[axis].size() > 1;
    if (std::find(copied.begin(), copied.end(), true) == copied.end()) continue;
    const std::optional<View> copy = materialized(input.view, copied, location);
    if (!copy) return false;
    input.view = *copy;
  }
  return true;
}

}  // namespace millrace
