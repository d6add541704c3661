// Indexing, reshaping and moving the axes of a view. The result is another view, or a copy where no view can express
// it. Tests: tests/frontend/views_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "frontend/builder.h"
#include "frontend/diagnostics.h"
#include "frontend/value.h"

namespace millrace {

// An item between the brackets of x[...].
struct IndexItem {
  enum class Kind { slice, integer, none, ellipsis };
  Kind kind = Kind::slice;
  std::optional<int64_t> start, stop, step;  // of a slice, as written: may be negative
  int64_t integer = 0;
  SourceLocation location;
};

// x[items], by NumPy's rules for slices and integers.
Value index_view(const View& view, const std::vector<IndexItem>& items, SourceLocation location, Builder& builder,
                 Diagnostics& diagnostics);

// Positions start, start + step, … of an axis; the step may be negative.
struct AxisSlice {
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 1;
};

// These return nothing only after an error, when the copy that they need is too large.
std::optional<View> sliced(const View& view, size_t axis, const AxisSlice& slice, Builder& builder,
                           SourceLocation location);
std::optional<View> reshaped(const View& view, const std::vector<int64_t>& extents, Builder& builder,
                             SourceLocation location);
// The axis becomes the window's first position; the position within the window is a new last axis.
std::optional<View> windowed(const View& view, size_t axis, int64_t window, Builder& builder, SourceLocation location);

View flipped(View view, size_t axis);
// The view's axes in another order; axes of extent one may be left out.
View permuted(const View& view, const std::vector<size_t>& order);
View with_added_axis(View view, size_t before);

// A new broadcast part along the axis, before (tile) or after (repeat) its parts.
enum class BroadcastPlace { outermost, innermost };
View broadcast_along(View view, size_t axis, const Part& part, BroadcastPlace place);

}  // namespace millrace
