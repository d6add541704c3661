#include "frontend/views.h"

#include "base/text.h"

namespace millrace {

constexpr std::string_view kNotBuilt = "slices are not built yet";

Value index_view(const View& view, const std::vector<IndexItem>& items, SourceLocation location, Builder&,
                 Diagnostics& diagnostics) {
  const auto report = [&](SourceLocation where, std::string_view message, std::string_view remedy) {
    diagnostics.report(where, message, remedy);
    return Value::broken();
  };
  size_t taken = 0;
  size_t dots = 0;
  for (const IndexItem& item : items) {
    if (item.kind == IndexItem::Kind::integer || item.start || item.stop || item.step)
      return report(item.location, kNotBuilt, "write x[:, None, ...]");
    if (item.kind == IndexItem::Kind::slice) ++taken;
    if (item.kind == IndexItem::Kind::ellipsis) ++dots;
  }
  const std::vector<int>& axes = view.axes;
  if (taken > axes.size() || dots > 1) {
    return report(location,
                  dots > 1 ? "the index has more than one ..."
                           : concat(taken, " indices for a tensor with ", axes.size(), " axes"),
                  "write at most one ':' per axis, and ... at most once");
  }
  View result{view.tensor, {}};
  size_t next = 0;
  for (const IndexItem& item : items) {
    if (item.kind == IndexItem::Kind::none) result.axes.push_back(kFixed);
    const size_t count = item.kind == IndexItem::Kind::slice      ? 1
                         : item.kind == IndexItem::Kind::ellipsis ? axes.size() - taken
                                                                  : 0;
    for (size_t m = 0; m < count; ++m) result.axes.push_back(axes[next++]);
  }
  while (next < axes.size()) result.axes.push_back(axes[next++]);
  if (result.axes.size() > kMaxRank)
    return report(location, concat("this tensor has ", result.axes.size(), " dimensions"),
                  concat("at most ", kMaxRank, " are allowed"));
  return Value::of(result);
}

}  // namespace millrace
