// The parts of a view: their extents and digits, and how to replace them. Tests: tests/frontend/views_test.cpp.
#pragma once

#include <optional>
#include <vector>

#include "frontend/value.h"

namespace millrace {

// The extents of the parts that an axis consists of, outermost first.
std::vector<int64_t> extents_of(const View& view, const std::vector<int>& parts);

// How many positions these parts count.
int64_t extent_of(const View& view, const std::vector<int>& parts);

// Whether no position depends on the part, so that the view repeats along it.
bool is_broadcast(const View& view, int part);

// Whether the axis is one broadcast part.
bool is_repeated(const View& view, size_t axis);

// Replaces a part in all positions.
void substitute(View& view, int part, const Position& by);

// Drops the parts that are on no axis: they stay at their first position. Numbers the others in the order of the axes.
View compacted(View view);

// Whether the view is its whole tensor, each axis one part, in order.
bool is_whole(const Graph& graph, const View& view);

// Whether each axis of the tensor is one whole part, or has extent one.
bool is_plain(const Graph& graph, const View& view);

// The positions of an axis as digits: the number of positions that each digit's step skips, innermost (1) first, and
// the extent of the axis last. `points` {1, 4, 12} are the digits of extents 3 and 4.
using SplitPoints = std::vector<int64_t>;
SplitPoints split_points(const View& view, const std::vector<int>& parts);

// The union of the two; nothing if they are not digits of one number, because a point does not divide the next.
std::optional<SplitPoints> common_points(const SplitPoints& a, const SplitPoints& b);

// The digits from unit `unit` up to, not including, unit `end`, in multiples of `unit`. `indices` are the indices of
// the digits, outermost first.
Position digits_between(const SplitPoints& points, const std::vector<int>& indices, int64_t unit, int64_t end);

}  // namespace millrace
