// x[items]: slices, integers, None and ... by NumPy's rules.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "frontend/views.h"

namespace millrace {
namespace {

// Clips a bound as Python does: a negative one counts from the end, and the result is limited to `least` and `most`.
int64_t clipped(std::optional<int64_t> bound, int64_t missing, int64_t extent, int64_t least, int64_t most) {
  if (!bound) return missing;
  return std::clamp(*bound < 0 ? std::max(*bound, -extent - 1) + extent : *bound, least, most);
}

class Indexer {
 public:
  Indexer(View view, const std::vector<IndexItem>& items, SourceLocation location, Builder& builder,
          Diagnostics& diagnostics)
      : view_(std::move(view)), items_(items), location_(location), builder_(builder), diagnostics_(diagnostics) {}

  Value run() {
    size_t taken = 0;
    size_t dots = 0;
    for (const IndexItem& item : items_) {
      if (item.kind == IndexItem::Kind::slice || item.kind == IndexItem::Kind::integer) ++taken;
      if (item.kind == IndexItem::Kind::ellipsis) ++dots;
    }
    const size_t rank = view_.axes.size();
    if (taken > rank || dots > 1) {
      return report(
          location_,
          dots > 1 ? "the index has more than one ..." : concat(taken, " indices for a tensor with ", rank, " axes"),
          "write at most one ':' per axis, and ... at most once");
    }
    for (const IndexItem& item : items_) {
      if (item.kind == IndexItem::Kind::ellipsis) axis_ += rank - taken;
      if (!apply(item)) return Value::broken();
    }
    View result = permuted(view_, kept());
    if (result.axes.size() > kMaxRank)
      return report(location_, concat("this tensor has ", result.axes.size(), " dimensions"),
                    concat("at most ", kMaxRank, " are allowed"));
    return Value::of(std::move(result));
  }

 private:
  Value report(SourceLocation location, std::string_view message, std::string_view remedy) {
    diagnostics_.report(location, message, remedy);
    return Value::broken();
  }

  bool apply(const IndexItem& item) {
    switch (item.kind) {
      case IndexItem::Kind::none: view_ = with_added_axis(std::move(view_), axis_++); return true;
      case IndexItem::Kind::slice: return slice(item);
      case IndexItem::Kind::integer: return integer(item);
      case IndexItem::Kind::ellipsis: return true;
    }
    return false;
  }

  bool slice(const IndexItem& item) {
    const int64_t extent = builder_.extent(view_, axis_);
    const int64_t step = std::clamp(item.step.value_or(1), -extent, extent);
    if (step == 0) {
      report(item.location, "the step of a slice is zero", "write a positive or negative step");
      return false;
    }
    const bool rises = step > 0;
    const int64_t start =
        clipped(item.start, rises ? 0 : extent - 1, extent, rises ? 0 : -1, rises ? extent : extent - 1);
    const int64_t stop = clipped(item.stop, rises ? extent : -1, extent, rises ? 0 : -1, rises ? extent : extent - 1);
    const int64_t count = rises ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
    if (count <= 0) {
      report(item.location, concat("this slice of an axis of extent ", extent, " is empty"),
             "empty tensors are not supported: choose bounds inside the axis");
      return false;
    }
    const std::optional<View> result = sliced(view_, axis_, {start, step, count}, builder_, item.location);
    if (!result) return false;
    view_ = *result;
    ++axis_;
    return true;
  }

  bool integer(const IndexItem& item) {
    const int64_t extent = builder_.extent(view_, axis_);
    const int64_t position = item.integer < 0 ? item.integer + extent : item.integer;
    if (position < 0 || position >= extent) {
      report(item.location, concat("index ", item.integer, " is outside an axis of extent ", extent),
             concat("write ", -extent, " to ", extent - 1));
      return false;
    }
    const std::optional<View> result = sliced(view_, axis_, {position, 1, 1}, builder_, item.location);
    if (!result) return false;
    view_ = *result;
    dropped_.push_back(axis_++);
    return true;
  }

  std::vector<size_t> kept() const {
    std::vector<size_t> axes;
    for (size_t axis = 0; axis < view_.axes.size(); ++axis) {
      if (std::find(dropped_.begin(), dropped_.end(), axis) == dropped_.end()) axes.push_back(axis);
    }
    return axes;
  }

  View view_;
  const std::vector<IndexItem>& items_;
  SourceLocation location_;
  Builder& builder_;
  Diagnostics& diagnostics_;
  size_t axis_ = 0;              // of view_, at the next item
  std::vector<size_t> dropped_;  // axes of view_ that an integer takes
};

}  // namespace

Value index_view(const View& view, const std::vector<IndexItem>& items, SourceLocation location, Builder& builder,
                 Diagnostics& diagnostics) {
  return Indexer(view, items, location, builder, diagnostics).run();
}

}  // namespace millrace
