#include "ir/layout.h"

#include <algorithm>

#include "base/text.h"

namespace millrace {
namespace {

constexpr size_t kPermutedAxes = 5;

int64_t extent_of(const Graph& graph, TensorId tensor, int axis) {
  return graph.extent(graph.tensor(tensor).dims[as_index(axis)]);
}

// The names of the axes, primed if one occurs twice.
std::vector<std::string> axis_names(const Graph& graph, TensorId tensor) {
  std::vector<std::string> names;
  for (const DimId dim : graph.tensor(tensor).dims) {
    std::string name = graph.dims[dim.at()].name;
    while (std::find(names.begin(), names.end(), name) != names.end()) name += "'";
    names.push_back(std::move(name));
  }
  return names;
}

bool is_letter(const std::string& name) { return name.find_first_not_of('\'', 1) == std::string::npos; }

}  // namespace

Layout written_layout(const Graph& graph, TensorId tensor) {
  Layout layout;
  const size_t rank = graph.tensor(tensor).dims.size();
  for (const bool trivial : {true, false}) {
    for (size_t axis = 0; axis < rank; ++axis) {
      if ((extent_of(graph, tensor, static_cast<int>(axis)) == 1) == trivial)
        layout.order.push_back(static_cast<int>(axis));
    }
  }
  return layout;
}

std::vector<Layout> layouts_of(const Graph& graph, TensorId tensor, bool masks) {
  const Layout written = written_layout(graph, tensor);
  std::vector<Layout> layouts = {written};
  auto first = static_cast<size_t>(std::count_if(written.order.begin(), written.order.end(),
                                                 [&](int axis) { return extent_of(graph, tensor, axis) == 1; }));
  if (written.order.size() - first <= kPermutedAxes) {
    Layout next = written;
    while (std::next_permutation(next.order.begin() + static_cast<std::ptrdiff_t>(first), next.order.end()))
      layouts.push_back(next);
  } else {
    for (size_t axis = first; axis + 1 < written.order.size(); ++axis) {
      Layout moved = written;
      std::rotate(moved.order.begin() + static_cast<std::ptrdiff_t>(axis),
                  moved.order.begin() + static_cast<std::ptrdiff_t>(axis) + 1, moved.order.end());
      layouts.push_back(std::move(moved));
    }
  }
  if (!masks || written.order.empty()) return layouts;
  const bool is_dropout_mask = dropout_of(graph, tensor) != nullptr;
  if (is_dropout_mask || is_computed_boolean(graph, tensor)) layouts.push_back({written.order, MaskStorage::bits});
  if (is_dropout_mask) layouts.push_back({written.order, MaskStorage::regenerated});
  return layouts;
}

std::vector<int64_t> strides_of(const Graph& graph, TensorId tensor, const Layout& layout) {
  std::vector<int64_t> strides(layout.order.size(), 0);
  int64_t stride = 1;
  for (size_t k = layout.order.size(); k-- > 0;) {
    strides[as_index(layout.order[k])] = stride;
    stride *= extent_of(graph, tensor, layout.order[k]);
  }
  return strides;
}

int64_t stored_bytes(const Graph& graph, TensorId tensor, const Layout& layout) {
  const int64_t elements = elements_of(graph, tensor);
  switch (layout.storage) {
    case MaskStorage::regenerated: return 0;
    case MaskStorage::bits: {
      const std::vector<DimId>& dims = graph.tensor(tensor).dims;
      const int64_t run = dims.empty() ? 1 : graph.extent(dims.back());
      return elements / run * ((run + 7) / 8);
    }
    case MaskStorage::words: break;
  }
  return elements * bytes_of(graph.tensor(tensor).dtype);
}

std::string print_layout(const Graph& graph, TensorId tensor, const Layout& layout) {
  if (layout.storage == MaskStorage::bits) return "bits";
  if (layout.storage == MaskStorage::regenerated) return "regenerated";
  const std::vector<std::string> names = axis_names(graph, tensor);
  const bool letters = std::all_of(names.begin(), names.end(), is_letter);
  std::vector<std::string> in_order;
  for (const int axis : layout.order) in_order.push_back(names[as_index(axis)]);
  return join(in_order, letters ? "" : ".");
}

std::optional<Layout> parse_layout(const Graph& graph, TensorId tensor, std::string_view text) {
  for (const Layout& layout : layouts_of(graph, tensor, false)) {
    if (print_layout(graph, tensor, layout) == text) return layout;
  }
  // Accepts axes of extent one anywhere, and any order for ranks whose layouts are not all listed.
  const std::vector<std::string> names = axis_names(graph, tensor);
  Layout layout;
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '.') ++at;
    int longest = -1;
    for (size_t axis = 0; axis < names.size(); ++axis) {
      const bool fits = text.substr(at).starts_with(names[axis]);
      if (fits && (longest < 0 || names[axis].size() > names[as_index(longest)].size()))
        longest = static_cast<int>(axis);
    }
    if (longest < 0 || std::find(layout.order.begin(), layout.order.end(), longest) != layout.order.end())
      return std::nullopt;
    layout.order.push_back(longest);
    at += names[as_index(longest)].size();
  }
  if (layout.order.size() != names.size()) return std::nullopt;
  const auto rest = std::stable_partition(layout.order.begin(), layout.order.end(),
                                          [&](int axis) { return extent_of(graph, tensor, axis) == 1; });
  std::sort(layout.order.begin(), rest);
  return layout;
}

}  // namespace millrace
