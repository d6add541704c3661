// Builder::gather: reads a table at positions given by a tensor of integers.
#include <algorithm>

#include "base/text.h"
#include "frontend/builder.h"

namespace millrace {

bool Builder::holds_integers(const View& view) const {
  const DType dtype = graph.tensor(view.tensor).dtype;
  return is_integer(dtype) || (whole_numbers_.contains(view.tensor) && !is_half(dtype));
}

namespace {

// The axis of the tensor that is exactly the view's axis, if there is one.
std::optional<size_t> tensor_axis(const Graph& graph, const View& view, size_t axis) {
  if (view.axes[axis].size() != 1) return std::nullopt;
  const int part = view.axes[axis][0];
  const Position whole(part);
  for (size_t k = 0; k < view.at.size(); ++k) {
    if (view.at[k].stride_along(part) == 0) continue;
    const bool all =
        view.at[k] == whole && view.parts[as_index(part)].extent == graph.extent(graph.tensor(view.tensor).dims[k]);
    return all ? std::optional(k) : std::nullopt;
  }
  return std::nullopt;
}

// The view at position zero of an axis, without that axis; the axis is one axis of its tensor.
View without_axis(View view, size_t axis) {
  substitute(view, view.axes[axis][0], Position(kFixed));
  view.axes.erase(view.axes.begin() + static_cast<std::ptrdiff_t>(axis));
  return compacted(std::move(view));
}

}  // namespace

std::optional<View> Builder::gatherable(const Gather& gather, SourceLocation location) {
  const View& table = gather.table;
  if (tensor_axis(graph, table, gather.axis)) return table;
  if (table.axes[gather.axis].empty()) {  // an axis that None added
    std::vector<DimId> dims;
    for (size_t axis = 0; axis < table.axes.size(); ++axis) dims.push_back(dim_of(table, axis));
    const std::optional<TensorId> copied = add_copy(table, table.axes, dims, location);
    return copied ? std::optional(whole(*copied)) : std::nullopt;
  }
  std::vector<bool> marked(table.axes.size(), false);
  marked[gather.axis] = true;
  return materialized(table, marked, location);
}

Value Builder::gather(Gather gather, SourceLocation location) {
  constexpr int64_t kMostPositions = int64_t{1} << 24;  // float32 counts no further
  if (!holds_integers(gather.ids)) {
    diagnostics_.report(location, "an index must be a tensor of integers",
                        "pass an argument of type int32 or int64, or np.arange(N)");
    return Value::broken();
  }
  if (extent(gather.table, gather.axis) > kMostPositions) {
    diagnostics_.report(location, "an axis of more than 2^24 positions cannot be indexed by a tensor",
                        "choose smaller sizes");
    return Value::broken();
  }
  const std::optional<View> table = gatherable(gather, location);
  if (!table) return Value::broken();
  Operator op;
  op.kind = OperatorKind::gather;
  op.gathered = static_cast<int>(*tensor_axis(graph, *table, gather.axis));
  std::vector<int> labels = gather.table_axes;
  labels.erase(labels.begin() + static_cast<std::ptrdiff_t>(gather.axis));
  std::vector<Term> terms = {{without_axis(*table, gather.axis), labels}, {gather.ids, gather.id_axes}};
  // If two axes have no common digits, the one of ids is copied: the table must stay as it is.
  std::vector<bool> unfit(gather.ids.axes.size(), false);
  for (size_t k = 0; k < labels.size(); ++k) {
    const auto same = std::find(gather.id_axes.begin(), gather.id_axes.end(), labels[k]);
    if (labels[k] == kFixed || same == gather.id_axes.end()) continue;
    const auto axis = static_cast<size_t>(same - gather.id_axes.begin());
    unfit[axis] = !common_points(split_points(terms[0].view, terms[0].view.axes[k]),
                                 split_points(gather.ids, gather.ids.axes[axis]));
  }
  if (std::find(unfit.begin(), unfit.end(), true) != unfit.end()) {
    const std::optional<View> copied = materialized(gather.ids, unfit, location);
    if (!copied) return Value::broken();
    terms[1].view = *copied;
  }
  std::optional<Space> space = common_space(terms, location);
  if (!space) return Value::broken();
  std::vector<size_t> counts;
  for (size_t axis = 0; axis < gather.dims.size(); ++axis) {
    const auto label = static_cast<int>(axis);
    space->points.try_emplace(label, SplitPoints{1});
    add_label(*space, label, gather.dims[axis], terms);
    counts.push_back(space->indices[label].size());
  }
  op.space = space->dims;
  op.reduced.resize(op.space.size(), false);
  for (const Term& term : terms) op.inputs.push_back(access(term, *space));
  const TensorId output = add_tensor(graph.tensor(gather.table.tensor).dtype, op.space);
  if (const auto compared = compared_.find(gather.table.tensor); compared != compared_.end())
    compared_[output] = compared->second;
  op.outputs.push_back({output, in_order(op.space.size())});
  if (!add_operator(std::move(op), location)) return Value::broken();
  return Value::of(grouped(output, counts));
}

Value Builder::gather_along(const View& table, size_t axis, const View& ids, SourceLocation location) {
  Gather made;
  made.table = table;
  made.axis = axis;
  made.ids = ids;
  for (size_t k = 0; k < table.axes.size(); ++k) {
    made.table_axes.push_back(k == axis ? kFixed : static_cast<int>(made.dims.size()));
    if (k != axis) {
      made.dims.push_back(dim_of(table, k));
      continue;
    }
    for (size_t id_axis = 0; id_axis < ids.axes.size(); ++id_axis) {
      made.id_axes.push_back(static_cast<int>(made.dims.size()));
      made.dims.push_back(dim_of(ids, id_axis));
    }
  }
  if (made.dims.size() <= kMaxRank) return gather(std::move(made), location);
  diagnostics_.report(location, concat("this tensor has ", made.dims.size(), " dimensions"),
                      concat("at most ", kMaxRank, " are allowed"));
  return Value::broken();
}

}  // namespace millrace
