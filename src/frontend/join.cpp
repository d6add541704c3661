// The builder's joins: concatenation and padding.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "frontend/builder.h"

namespace millrace {
namespace {

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

// The region of the joined space that an input fills: a range of the outermost digit of each axis.
Region region_of(const Graph& graph, const Operator& op, const Placed& input, const std::vector<JoinedAxis>& axes) {
  Region region = all_points(graph, op);
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const int index = axes[axis].indices[0];
    const int64_t unit = axes[axis].points.back() / graph.extent(op.space[as_index(index)]);
    const int64_t first = input.at[axis] / unit;
    region[as_index(index)] = {first, first + extent_of(input.view, input.view.axes[axis]) / unit - 1};
  }
  return region;
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
  for (const Placed& input : inputs) {
    op.inputs.push_back(placed_access(input, axes));
    op.regions.push_back(region_of(graph, op, input, axes));
  }
  const bool boolean = graph.tensor(views[0].tensor).dtype == DType::boolean;
  const TensorId output = add_tensor(boolean ? DType::boolean : common_dtype(views), op.space);
  if (boolean) compared_[output] = common_dtype(views);
  op.outputs.push_back({output, in_order(op.space.size())});
  if (!add_operator(std::move(op), location)) return Value::broken();
  return Value::of(grouped(output, counts));
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
