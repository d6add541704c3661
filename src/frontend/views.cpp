#include "frontend/views.h"

#include <algorithm>
#include <set>

#include "frontend/view_parts.h"

namespace millrace {
namespace {

// Keeps one position of an axis that consists of these parts.
void fix_position(View& view, std::vector<int>& parts, int64_t position) {
  for (size_t k = parts.size(); k-- > 0;) {
    const int64_t extent = view.parts[as_index(parts[k])].extent;
    substitute(view, parts[k], Position({}, position % extent));
    position /= extent;
  }
  parts.clear();
}

void slice_part(View& view, int part, const AxisSlice& slice, Builder& builder) {
  substitute(view, part, Position({{part, slice.step}}, slice.start));
  Part& sliced_part = view.parts[as_index(part)];
  sliced_part = {builder.dim_like(sliced_part.dim, slice.count, view), slice.count};
}

// Slices the axis that consists of these parts, with a positive step; false if the result cannot be written as digits
// of them.
bool slice_parts(View& view, std::vector<int>& parts, const AxisSlice& slice, Builder& builder) {
  const int64_t extent = extent_of(view, parts);
  if (slice.start == 0 && slice.step == 1 && slice.count == extent) return true;
  if (slice.count == 1) {
    fix_position(view, parts, slice.start);
    return true;
  }
  if (parts.size() == 1) {
    slice_part(view, parts[0], slice, builder);
    return true;
  }
  std::vector<int> inner(parts.begin() + 1, parts.end());
  const int64_t unit = extent_of(view, inner);
  const int64_t last = slice.start + (slice.count - 1) * slice.step;
  if (slice.start / unit == last / unit) {  // within one position of the outermost part
    substitute(view, parts[0], Position({}, slice.start / unit));
    parts = inner;
    return slice_parts(view, parts, {slice.start % unit, slice.step, slice.count}, builder);
  }
  if (slice.step % unit == 0) {  // only the outermost part moves
    fix_position(view, inner, slice.start % unit);
    slice_part(view, parts[0], {slice.start / unit, slice.step / unit, slice.count}, builder);
    parts.resize(1);
    return true;
  }
  if (slice.step == 1 && slice.start % unit == 0 && slice.count % unit == 0) {
    slice_part(view, parts[0], {slice.start / unit, 1, slice.count / unit}, builder);
    return true;
  }
  if (unit % slice.step == 0 && slice.start < slice.step && slice.count * slice.step == extent) {
    const int outermost = parts[0];
    if (!slice_parts(view, inner, {slice.start, slice.step, unit / slice.step}, builder)) return false;
    parts = inner;
    parts.insert(parts.begin(), outermost);
    return true;
  }
  return false;
}

std::vector<bool> marked(const View& view, size_t axis) {
  std::vector<bool> axes(view.axes.size(), false);
  axes[axis] = true;
  return axes;
}

// Splits a part into digits at these points of its positions; `targets` are extents that the program's text contains.
std::vector<int> split_part(View& view, int part, const SplitPoints& points, const std::set<int64_t>& targets,
                            Builder& builder) {
  if (points.size() == 2) return {part};
  const DimId whole = view.parts[as_index(part)].dim;
  std::vector<int> digits;
  Position position;
  for (size_t k = points.size() - 1; k > 0; --k) {
    const int64_t extent = points[k] / points[k - 1];
    const std::optional<DimId> size = targets.contains(extent) ? builder.size_dim(extent, view) : std::nullopt;
    const auto number = static_cast<int>(view.parts.size());
    view.parts.push_back({size ? *size : builder.digit_dim(whole, extent, points.size() - 1 - k), extent});
    position.terms.push_back({number, points[k - 1]});
    digits.push_back(number);
  }
  std::vector<Position> by = in_order(view.parts.size());
  by[as_index(part)] = position;
  for (Position& at : view.at) at = substituted(at, by);
  return digits;
}

// All parts of the view in order, as one axis.
std::vector<int> all_parts(const View& view) {
  std::vector<int> parts;
  for (const std::vector<int>& axis : view.axes) {
    for (const int part : axis) {
      if (view.parts[as_index(part)].extent > 1) parts.push_back(part);
    }
  }
  return parts;
}

SplitPoints points_of_shape(const std::vector<int64_t>& extents) {
  SplitPoints points = {1};
  for (size_t k = extents.size(); k-- > 0;) {
    if (extents[k] > 1) points.push_back(points.back() * extents[k]);
  }
  return points;
}

// Splits the view at the points that it has in common with the new shape, and makes each run of parts between two such
// points an axis. Runs in which the old and the new digits do not fit are copied.
std::optional<View> with_fitting_runs(const View& view, const SplitPoints& wanted, Builder& builder,
                                      SourceLocation location) {
  const std::vector<int> parts = all_parts(view);
  const SplitPoints present = split_points(view, parts);
  View runs = view;
  runs.axes.clear();
  std::vector<bool> unfit;
  std::vector<int> run;
  SplitPoints points = {present.back()};  // of the run, falling
  int64_t unit = present.back();
  for (const int part : parts) {
    run.push_back(part);
    unit /= view.parts[as_index(part)].extent;
    points.push_back(unit);
    if (!std::binary_search(wanted.begin(), wanted.end(), unit)) continue;
    std::reverse(points.begin(), points.end());
    SplitPoints wanted_here;
    std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(wanted_here),
                 [&](int64_t point) { return point >= points.front() && point <= points.back(); });
    unfit.push_back(!common_points(points, wanted_here).has_value());
    runs.axes.push_back(std::move(run));
    run.clear();
    points = {unit};
  }
  runs = compacted(std::move(runs));
  if (std::find(unfit.begin(), unfit.end(), true) == unfit.end()) return runs;
  return builder.materialized(runs, unfit, location);
}

}  // namespace

std::optional<View> sliced(const View& view, size_t axis, const AxisSlice& slice, Builder& builder,
                           SourceLocation location) {
  AxisSlice rising = slice;
  if (slice.step < 0) {
    rising.start = slice.start + (slice.count - 1) * slice.step;
    rising.step = -slice.step;
  }
  View result = view;
  if (!slice_parts(result, result.axes[axis], rising, builder)) {
    const std::optional<View> copied = builder.materialized(view, marked(view, axis), location);
    if (!copied) return std::nullopt;
    result = *copied;
    slice_parts(result, result.axes[axis], rising, builder);
  }
  if (slice.step < 0) result = flipped(std::move(result), axis);
  return compacted(std::move(result));
}

View flipped(View view, size_t axis) {
  for (const int part : view.axes[axis])
    substitute(view, part, Position({{part, -1}}, view.parts[as_index(part)].extent - 1));
  return view;
}

View permuted(const View& view, const std::vector<size_t>& order) {
  View result = view;
  result.axes.clear();
  for (const size_t axis : order) result.axes.push_back(view.axes[axis]);
  return compacted(std::move(result));
}

View with_added_axis(View view, size_t before) {
  view.axes.emplace(view.axes.begin() + static_cast<std::ptrdiff_t>(before));
  return view;
}

std::optional<View> reshaped(const View& view, const std::vector<int64_t>& extents, Builder& builder,
                             SourceLocation location) {
  const SplitPoints wanted = points_of_shape(extents);
  const std::optional<View> runs = with_fitting_runs(view, wanted, builder, location);
  if (!runs) return std::nullopt;
  View result = *runs;
  const std::set<int64_t> targets(extents.begin(), extents.end());
  std::vector<int> digits;  // innermost first
  const std::vector<int> parts = all_parts(result);
  int64_t unit = 1;
  for (size_t k = parts.size(); k-- > 0;) {
    const int64_t extent = result.parts[as_index(parts[k])].extent;
    SplitPoints points;
    for (const int64_t point : wanted) {
      if (point > unit && point < unit * extent) points.push_back(point / unit);
    }
    points.insert(points.begin(), 1);
    points.push_back(extent);
    const std::vector<int> split = split_part(result, parts[k], points, targets, builder);
    digits.insert(digits.end(), split.rbegin(), split.rend());
    unit *= extent;
  }
  result.axes.assign(extents.size(), {});
  size_t next = 0;
  for (size_t axis = extents.size(); axis-- > 0;) {
    for (int64_t here = 1; here < extents[axis]; ++next) {
      result.axes[axis].insert(result.axes[axis].begin(), digits[next]);
      here *= result.parts[as_index(digits[next])].extent;
    }
  }
  return compacted(std::move(result));
}

std::optional<View> windowed(const View& view, size_t axis, int64_t window, Builder& builder, SourceLocation location) {
  View result = view;
  if (result.axes[axis].size() > 1) {
    const std::optional<View> copied = builder.materialized(view, marked(view, axis), location);
    if (!copied) return std::nullopt;
    result = *copied;
  }
  result.axes.emplace_back();
  if (result.axes[axis].empty()) return result;
  const int part = result.axes[axis][0];
  const auto inside = static_cast<int>(result.parts.size());
  Part& first = result.parts[as_index(part)];
  const DimId whole = first.dim;
  first = {builder.dim_like(whole, first.extent - window + 1, result), first.extent - window + 1};
  result.parts.push_back({builder.dim_like(whole, window, result), window});
  result.axes.back().push_back(inside);
  std::vector<Position> by = in_order(result.parts.size());
  by[as_index(part)] = Position({{part, 1}, {inside, 1}}, 0);
  for (Position& at : result.at) at = substituted(at, by);
  return result;
}

View broadcast_along(View view, size_t axis, const Part& part, BroadcastPlace place) {
  if (part.extent == 1) return view;
  std::vector<int>& parts = view.axes[axis];
  std::erase_if(parts, [&](int old) { return view.parts[as_index(old)].extent == 1; });
  parts.insert(place == BroadcastPlace::outermost ? parts.begin() : parts.end(), static_cast<int>(view.parts.size()));
  view.parts.push_back(part);
  return compacted(std::move(view));
}

}  // namespace millrace
