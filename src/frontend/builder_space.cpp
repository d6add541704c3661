// The builder's views: their shapes and dimensions, the indices that the axes of operands become, and copies.
#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "frontend/builder.h"

namespace millrace {
namespace {

// All of a view, to find it again.
std::string text_of(const View& view, const std::vector<bool>& marked) {
  std::string text = concat(view.tensor.at());
  for (const Part& part : view.parts) text += concat(" ", part.dim.at(), ":", part.extent);
  for (size_t axis = 0; axis < view.axes.size(); ++axis)
    text += concat(marked[axis] ? " *[" : " [", join(view.axes[axis], " "), "]");
  for (const Position& position : view.at) {
    text += concat(" (", position.offset);
    for (const IndexTerm& term : position.terms) text += concat(" ", term.index, ":", term.stride);
    text += ")";
  }
  return text;
}

bool is_number(const Dim& dim) { return dim.name == concat(dim.extent); }

}  // namespace

DimId Builder::dim(const std::string& name, int64_t extent) {
  const auto [entry, fresh] = dims_.try_emplace({name, extent}, DimId(graph.dims.size()));
  if (fresh) graph.dims.push_back({name, extent});
  return entry->second;
}

View Builder::whole(TensorId tensor) const {
  return grouped(tensor, std::vector<size_t>(graph.tensor(tensor).dims.size(), 1));
}

View Builder::grouped(TensorId tensor, const std::vector<size_t>& counts) const {
  View view{tensor, {}, {}, in_order(graph.tensor(tensor).dims.size())};
  for (const DimId dim : graph.tensor(tensor).dims) view.parts.push_back({dim, graph.extent(dim)});
  int next = 0;
  for (const size_t count : counts) {
    view.axes.emplace_back(count);
    for (int& part : view.axes.back()) part = next++;
  }
  return view;
}

int64_t Builder::extent(const View& view, size_t axis) const { return extent_of(view, view.axes[axis]); }

std::string Builder::shape(const View& view) const {
  std::vector<std::string> extents;
  for (size_t axis = 0; axis < view.axes.size(); ++axis) extents.push_back(concat(extent(view, axis)));
  return concat("[", millrace::join(extents, ", "), "]");
}

DimId Builder::dim_of(const View& view, size_t axis) {
  const std::vector<int>& parts = view.axes[axis];
  if (parts.empty()) return dim("1", 1);
  if (parts.size() == 1) return view.parts[as_index(parts[0])].dim;
  const int64_t whole_extent = extent(view, axis);
  if (const std::optional<DimId> size = size_dim(whole_extent, view)) return *size;
  std::vector<std::string> names;
  bool numbers = true;
  for (const int part : parts) {
    const Dim& factor = graph.dims[view.parts[as_index(part)].dim.at()];
    numbers = numbers && is_number(factor);
    names.push_back(factor.name);
  }
  return dim(numbers ? concat(whole_extent) : millrace::join(names, "*"), whole_extent);
}

std::optional<DimId> Builder::size_dim(int64_t extent, const View& view) {
  const auto found = sizes_.find(extent);
  if (found == sizes_.end() || found->second.size() != 1) return std::nullopt;
  const std::string& name = found->second.front();
  const bool used = std::any_of(view.parts.begin(), view.parts.end(),
                                [&](const Part& part) { return graph.dims[part.dim.at()].name == name; });
  if (used) return std::nullopt;
  return dim(name, extent);
}

DimId Builder::dim_like(DimId old, int64_t extent, const View& view) {
  const Dim& base = graph.dims[old.at()];
  if (base.extent == extent) return old;
  if (const std::optional<DimId> size = size_dim(extent, view)) return *size;
  return dim(resized_name(base, extent), extent);
}

DimId Builder::digit_dim(DimId whole, int64_t extent, size_t digit) {
  const Dim& base = graph.dims[whole.at()];
  return dim(is_number(base) ? concat(extent) : concat(base.name, ".", digit), extent);
}

// The largest operands come first: of two whose axes have no common digits, the smaller one is copied.
std::optional<Builder::Space> Builder::common_space(std::vector<Term>& terms, SourceLocation location) {
  std::vector<size_t> order(terms.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t l, size_t r) {
    return elements_of(graph, terms[l].view.tensor) > elements_of(graph, terms[r].view.tensor);
  });
  Space space;
  for (const size_t k : order) {
    Term& term = terms[k];
    std::vector<bool> unfit(term.labels.size(), false);
    for (size_t axis = 0; axis < term.labels.size(); ++axis) {
      if (term.labels[axis] == kFixed) continue;
      const SplitPoints here = split_points(term.view, term.view.axes[axis]);
      const auto [entry, fresh] = space.points.try_emplace(term.labels[axis], here);
      const std::optional<SplitPoints> both = common_points(entry->second, here);
      if (both) entry->second = *both;
      unfit[axis] = !both.has_value();
    }
    if (std::find(unfit.begin(), unfit.end(), true) == unfit.end()) continue;
    const std::optional<View> copied = materialized(term.view, unfit, location);
    if (!copied) return std::nullopt;
    term.view = *copied;
  }
  return space;
}

// The part of an operand's axis that is exactly this digit.
std::optional<DimId> Builder::part_at(const std::vector<Term>& terms, int label, int64_t unit, int64_t extent) const {
  for (const Term& term : terms) {
    for (size_t axis = 0; axis < term.labels.size(); ++axis) {
      if (term.labels[axis] != label) continue;
      int64_t passed = 1;
      const std::vector<int>& parts = term.view.axes[axis];
      for (size_t k = parts.size(); k-- > 0;) {
        const Part& part = term.view.parts[as_index(parts[k])];
        if (passed == unit && part.extent == extent) return part.dim;
        passed *= part.extent;
      }
    }
  }
  return std::nullopt;
}

void Builder::add_label(Space& space, int label, DimId dim, const std::vector<Term>& terms) {
  std::vector<int>& indices = space.indices[label];
  const auto add = [&](DimId index) {
    indices.push_back(static_cast<int>(space.dims.size()));
    space.dims.push_back(index);
  };
  const SplitPoints& points = space.points.at(label);
  if (points.size() <= 2) return add(dim);
  for (size_t k = points.size() - 1; k > 0; --k) {
    const int64_t extent = points[k] / points[k - 1];
    const std::optional<DimId> part = part_at(terms, label, points[k - 1], extent);
    add(part ? *part : digit_dim(dim, extent, points.size() - 1 - k));
  }
}

Access Builder::access(const Term& term, const Space& space) const {
  std::vector<Position> by(term.view.parts.size(), kFixed);
  for (size_t axis = 0; axis < term.labels.size(); ++axis) {
    if (term.labels[axis] == kFixed) continue;
    const std::vector<int>& indices = space.indices.at(term.labels[axis]);
    const std::vector<int>& parts = term.view.axes[axis];
    if (parts.size() == 1 && indices.size() == 1) {
      by[as_index(parts[0])] = indices[0];
      continue;
    }
    const SplitPoints& points = space.points.at(term.labels[axis]);
    int64_t unit = 1;
    for (size_t k = parts.size(); k-- > 0;) {
      const int64_t next = unit * term.view.parts[as_index(parts[k])].extent;
      by[as_index(parts[k])] = digits_between(points, indices, unit, next);
      unit = next;
    }
  }
  Access result{term.view.tensor, {}};
  for (const Position& position : term.view.at) result.axes.push_back(substituted(position, by));
  return result;
}

std::optional<TensorId> Builder::add_copy(const View& view, const std::vector<std::vector<int>>& groups,
                                          const std::vector<DimId>& dims, SourceLocation location) {
  Operator op;
  op.kind = OperatorKind::copy;
  std::vector<Position> by(view.parts.size(), kFixed);
  Access output;
  for (size_t group = 0; group < groups.size(); ++group) {
    Position& position = output.axes.emplace_back();
    int64_t unit = extent_of(view, groups[group]);
    for (const int part : groups[group]) {
      const auto index = static_cast<int>(op.space.size());
      unit /= view.parts[as_index(part)].extent;
      position.terms.push_back({index, unit});
      by[as_index(part)] = index;
      op.space.push_back(view.parts[as_index(part)].dim);
    }
    if (!groups[group].empty()) continue;
    position = static_cast<int>(op.space.size());
    op.space.push_back(dims[group]);
  }
  op.reduced.resize(op.space.size(), false);
  Access input{view.tensor, {}};
  for (const Position& position : view.at) input.axes.push_back(substituted(position, by));
  op.inputs.push_back(std::move(input));
  output.tensor = add_tensor(graph.tensor(view.tensor).dtype, dims);
  if (const auto compared = compared_.find(view.tensor); compared != compared_.end())
    compared_[output.tensor] = compared->second;
  op.outputs.push_back(output);
  if (!add_operator(std::move(op), location)) return std::nullopt;
  return output.tensor;
}

std::optional<View> Builder::materialized(const View& view, const std::vector<bool>& axes, SourceLocation location) {
  const std::string key = text_of(view, axes);
  if (const auto known = copies_.find(key); known != copies_.end()) return known->second;
  std::vector<std::vector<int>> groups;
  std::vector<DimId> dims;
  View result;
  const auto add_group = [&](const std::vector<int>& parts, DimId dim) {
    result.at.emplace_back(static_cast<int>(result.parts.size()));
    result.axes.back().push_back(static_cast<int>(result.parts.size()));
    result.parts.push_back({dim, extent_of(view, parts)});
    groups.push_back(parts);
    dims.push_back(dim);
  };
  for (size_t axis = 0; axis < view.axes.size(); ++axis) {
    result.axes.emplace_back();
    if (axes[axis] && !view.axes[axis].empty()) {
      add_group(view.axes[axis], dim_of(view, axis));
      continue;
    }
    for (const int part : view.axes[axis]) {
      if (!is_broadcast(view, part)) {
        add_group({part}, view.parts[as_index(part)].dim);
        continue;
      }
      result.axes.back().push_back(static_cast<int>(result.parts.size()));
      result.parts.push_back(view.parts[as_index(part)]);
    }
  }
  const std::optional<TensorId> tensor = add_copy(view, groups, dims, location);
  if (!tensor) return std::nullopt;
  result.tensor = *tensor;
  copies_.emplace(key, result);
  return result;
}

}  // namespace millrace
