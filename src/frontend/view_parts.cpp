#include "frontend/view_parts.h"

#include <algorithm>
#include <set>

namespace millrace {

std::vector<int64_t> extents_of(const View& view, const std::vector<int>& parts) {
  std::vector<int64_t> extents;
  for (const int part : parts) extents.push_back(view.parts[as_index(part)].extent);
  return extents;
}

int64_t extent_of(const View& view, const std::vector<int>& parts) {
  int64_t extent = 1;
  for (const int part : parts) extent *= view.parts[as_index(part)].extent;
  return extent;
}

bool is_broadcast(const View& view, int part) {
  return std::all_of(view.at.begin(), view.at.end(),
                     [&](const Position& position) { return position.stride_along(part) == 0; });
}

bool is_repeated(const View& view, size_t axis) {
  const std::vector<int>& parts = view.axes[axis];
  return parts.size() == 1 && view.parts[as_index(parts[0])].extent > 1 && is_broadcast(view, parts[0]);
}

void substitute(View& view, int part, const Position& by) {
  std::vector<Position> all = in_order(view.parts.size());
  all[as_index(part)] = by;
  for (Position& position : view.at) position = substituted(position, all);
}

View compacted(View view) {
  std::vector<Position> by(view.parts.size(), kFixed);
  std::vector<Part> parts;
  for (std::vector<int>& axis : view.axes) {
    for (int& part : axis) {
      const auto number = static_cast<int>(parts.size());
      by[as_index(part)] = number;
      parts.push_back(view.parts[as_index(part)]);
      part = number;
    }
  }
  for (Position& position : view.at) position = substituted(position, by);
  view.parts = std::move(parts);
  return view;
}

bool is_whole(const Graph& graph, const View& view) {
  const std::vector<DimId>& dims = graph.tensor(view.tensor).dims;
  if (view.axes.size() != dims.size() || view.at != in_order(dims.size())) return false;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (view.axes[axis] != std::vector<int>{static_cast<int>(axis)}) return false;
    if (view.parts[axis].extent != graph.extent(dims[axis])) return false;
  }
  return true;
}

bool is_plain(const Graph& graph, const View& view) {
  for (size_t axis = 0; axis < view.at.size(); ++axis) {
    const Position& position = view.at[axis];
    const int64_t extent = graph.extent(graph.tensor(view.tensor).dims[axis]);
    const int64_t seen = position.terms.empty() ? 1 : view.parts[as_index(position.index())].extent;
    if (!position.is_index() || seen != extent) return false;
  }
  return std::all_of(view.axes.begin(), view.axes.end(), [](const std::vector<int>& axis) { return axis.size() <= 1; });
}

SplitPoints split_points(const View& view, const std::vector<int>& parts) {
  SplitPoints points = {1};
  for (size_t k = parts.size(); k-- > 0;) {
    const int64_t extent = view.parts[as_index(parts[k])].extent;
    if (extent > 1) points.push_back(points.back() * extent);
  }
  return points;
}

std::optional<SplitPoints> common_points(const SplitPoints& a, const SplitPoints& b) {
  SplitPoints points;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(points));
  for (size_t k = 0; k + 1 < points.size(); ++k) {
    if (points[k + 1] % points[k] != 0) return std::nullopt;
  }
  return points;
}

Position digits_between(const SplitPoints& points, const std::vector<int>& indices, int64_t unit, int64_t end) {
  Position position;
  for (size_t k = 0; k < indices.size(); ++k) {
    const int64_t here = points[indices.size() - 1 - k];
    if (here >= unit && here < end) position.terms.push_back({indices[k], here / unit});
  }
  return position;
}

}  // namespace millrace
