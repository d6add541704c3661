#include "autodiff/access_gradient.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/text.h"

namespace millrace {
namespace {

constexpr size_t kMostJoined = 8;  // inputs of a join

using Terms = std::vector<IndexTerm>;

// The terms of a position, the smallest stride first.
Terms sorted_terms(const Position& position) {
  Terms terms = position.terms;
  std::sort(terms.begin(), terms.end(),
            [](const IndexTerm& l, const IndexTerm& r) { return std::abs(l.stride) < std::abs(r.stride); });
  return terms;
}

// Whether each index is on one axis only.
bool uses_indices_once(const Access& operand) {
  std::map<int, int> uses;
  for (const Position& axis : operand.axes) {
    for (const IndexTerm& term : axis.terms) ++uses[term.index];
  }
  return std::all_of(uses.begin(), uses.end(), [](const auto& use) { return use.second == 1; });
}

// If the indices of an axis are the digits of a number: how many values the number takes, counted from zero. Otherwise
// 0.
int64_t digits_of(const Graph& graph, const Operator& op, const Position& axis) {
  int64_t next = 1;
  for (const IndexTerm& term : sorted_terms(axis)) {
    const int64_t extent = graph.extent(op.space[as_index(term.index)]);
    if (extent > 1 && term.stride != next) return 0;
    next *= extent;
  }
  return next;
}

// One axis of an operand while its gradient is computed: the current tensor has one axis per term, from `first` on.
class Placer {
 public:
  Placer(BackwardBuilder& builder, TensorId compact, const GradientNames& names)
      : builder_(builder), current_(compact), names_(names) {}

  TensorId current() const { return current_; }
  int64_t extent(size_t axis) const {
    const Graph& graph = builder_.graph();
    return graph.extent(graph.tensor(current_).dims[axis]);
  }

  // Reverses an axis.
  void reverse(size_t axis) {
    Operator copy = over_current(OperatorKind::copy);
    Access input{current_, in_order(copy.space.size())};
    input.axes[axis] = Position({{static_cast<int>(axis), -1}}, extent(axis) - 1);
    copy.inputs.push_back(std::move(input));
    emit_plain(std::move(copy));
  }

  // Adds zeros before and after an axis.
  void pad(size_t axis, int64_t before, int64_t after) {
    const int64_t points = extent(axis);
    if (before == 0 && after == 0) return;
    Operator join = over_current(OperatorKind::join);
    join.space[axis] = builder_.dim_like(join.space[axis], before + points + after);
    Access input{current_, in_order(join.space.size())};
    input.axes[axis].offset = -before;
    join.inputs.push_back(std::move(input));
    join.regions.push_back(all_points(builder_.graph(), join));
    join.regions[0][axis] = {before, before + points - 1};
    emit_plain(std::move(join));
  }

  // Puts stride - 1 zeros after each element of an axis.
  void dilate(size_t axis, int64_t stride) {
    Operator join = over_current(OperatorKind::join);
    const auto zeros = static_cast<int>(axis) + 1;  // the new index
    join.space.insert(join.space.begin() + zeros, builder_.dim(concat(stride), stride));
    join.reduced.push_back(false);
    Access input{current_, {}};
    std::vector<Position> output;
    for (int k = 0; k < static_cast<int>(join.space.size()); ++k) {
      if (k == zeros) continue;
      const bool dilated = k == static_cast<int>(axis);
      input.axes.emplace_back(k);
      output.push_back(dilated ? Position({{k, stride}, {zeros, 1}}, 0) : Position(k));
    }
    join.inputs.push_back(std::move(input));
    join.regions.push_back(all_points(builder_.graph(), join));
    join.regions[0][as_index(zeros)] = {0, 0};
    current_ = builder_.emit(std::move(join), names_.op, names_.tensor, dtype(), output);
  }

  // Sums axis + 1 into axis: position v of `axis` and j of the next are at v + stride · j.
  void fold(size_t axis, int64_t stride) {
    const int64_t steps = extent(axis + 1);
    const int64_t margin = stride * (steps - 1);
    pad(axis, margin, margin);
    const int64_t padded = extent(axis);
    Operator sum = over_current(OperatorKind::sum);
    sum.space[axis] = builder_.dim_like(sum.space[axis], padded - margin);
    sum.reduced[axis + 1] = true;
    const int value = static_cast<int>(axis);
    Access input{current_, in_order(sum.space.size())};
    input.axes[axis] = Position({{value, 1}, {value + 1, -stride}}, margin);
    sum.inputs.push_back(std::move(input));
    std::vector<Position> output = in_order(sum.space.size());
    output.erase(output.begin() + value + 1);
    current_ = builder_.emit(std::move(sum), names_.op, names_.tensor, dtype(), output);
  }

  // Merges axis + 1, the outer digit, into axis.
  void merge(size_t axis) {
    Operator copy = over_current(OperatorKind::copy);
    std::swap(copy.space[axis], copy.space[axis + 1]);
    Access input{current_, in_order(copy.space.size())};
    std::swap(input.axes[axis], input.axes[axis + 1]);
    copy.inputs.push_back(std::move(input));
    std::vector<Position> output = in_order(copy.space.size());
    const int outer = static_cast<int>(axis);
    output[axis] = Position({{outer, extent(axis)}, {outer + 1, 1}}, 0);
    output.erase(output.begin() + outer + 1);
    current_ = builder_.emit(std::move(copy), names_.op, names_.tensor, dtype(), output);
  }

 private:
  DType dtype() const { return builder_.graph().tensor(current_).dtype; }

  Operator over_current(OperatorKind kind) const {
    return BackwardBuilder::over(kind, builder_.graph().tensor(current_).dims);
  }

  void emit_plain(Operator op) {
    const std::vector<Position> output = in_order(op.space.size());
    current_ = builder_.emit(std::move(op), names_.op, names_.tensor, dtype(), output);
  }

  BackwardBuilder& builder_;
  TensorId current_;
  const GradientNames& names_;
};

// The index that a window is moved along: only this axis of the operand and one axis of the gradient run along it. If
// there are several, it is the one with the largest extent.
std::optional<IndexTerm> center_of(const Graph& graph, const Operator& op, size_t input, size_t axis, const Access& g) {
  std::optional<IndexTerm> best;
  for (const IndexTerm& term : op.inputs[input].axes[axis].terms) {
    const auto runs = [&](const Position& position) { return position.stride_along(term.index) != 0; };
    const bool once = std::count_if(g.axes.begin(), g.axes.end(), runs) == 1 &&
                      std::find(g.axes.begin(), g.axes.end(), Position(term.index)) != g.axes.end();
    bool alone = true;
    for (size_t other = 0; other < op.inputs.size(); ++other)
      alone = alone && (other == input || !runs_along(op.inputs[other], as_index(term.index)));
    const auto extent = [&](const IndexTerm& other) { return graph.extent(op.space[as_index(other.index)]); };
    if (term.stride > 0 && once && alone && (!best || extent(term) > extent(*best))) best = term;
  }
  return best;
}

// The position of a part in the whole gradient of `like`. A dilated part may end in zeros that lie outside of it.
Region region_of(const Graph& graph, TensorId like, const Contribution& part) {
  Region region;
  for (size_t axis = 0; axis < part.first.size(); ++axis) {
    const int64_t extent = graph.extent(graph.tensor(part.tensor).dims[axis]);
    const int64_t end = graph.extent(graph.tensor(like).dims[axis]);
    region.push_back({part.first[axis], std::min(part.first[axis] + extent, end) - 1});
  }
  return region;
}

}  // namespace

void transpose_windows(BackwardBuilder& builder, Operator& op, size_t input, Access& g, const GradientNames& names) {
  for (size_t axis = 0; axis < op.inputs[input].axes.size(); ++axis) {
    const Graph& graph = builder.graph();
    const Access& operand = op.inputs[input];
    const Position window = operand.axes[axis];
    if (window.terms.size() < 2 || !uses_indices_once(operand) || digits_of(graph, op, window) > 0) continue;
    const std::optional<IndexTerm> center = center_of(graph, op, input, axis, g);
    if (!center) continue;
    const auto along = std::find(g.axes.begin(), g.axes.end(), Position(center->index));
    const auto g_axis = static_cast<size_t>(along - g.axes.begin());
    int64_t margin = 0;  // how far the other indices move the window
    int64_t before = 0;  // how much of that is towards zero
    Position shifted(center->index);
    for (const IndexTerm& term : window.terms) {
      if (term.index == center->index) continue;
      const int64_t reach = term.stride * (graph.extent(op.space[as_index(term.index)]) - 1);
      margin += std::abs(reach);
      before += std::max<int64_t>(-reach, 0);
      shifted.terms.push_back({term.index, -term.stride});
    }
    std::sort(shifted.terms.begin(), shifted.terms.end());
    shifted.offset = margin - before;
    const DimId points = op.space[as_index(center->index)];
    const int64_t touched = center->stride * (graph.extent(points) - 1) + margin + 1;

    Placer placer(builder, g.tensor, names);
    if (center->stride > 1) placer.dilate(g_axis, center->stride);
    placer.pad(g_axis, margin, std::max<int64_t>(margin - (center->stride - 1), 0));
    g.tensor = placer.current();
    g.axes[g_axis] = shifted;
    op.space[as_index(center->index)] = builder.dim_like(points, touched);
    op.inputs[input].axes[axis] = Position({{center->index, 1}}, window.offset - before);
  }
}

CompactTensor compact_tensor(BackwardBuilder& builder, const Operator& op, const Access& operand) {
  const Graph& graph = builder.graph();
  const std::vector<DimId> dims = graph.tensor(operand.tensor).dims;
  CompactTensor compact;
  if (!uses_indices_once(operand)) {  // the frontend copies such a diagonal first, unless its accesses are plain
    return compact;
  }
  compact.whole = true;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    const Position& position = operand.axes[axis];
    const int64_t digits = digits_of(graph, op, position);
    if (digits > 0) {
      compact.axes.emplace_back(position.terms, 0);
      const bool all = digits == graph.extent(dims[axis]) && position.offset == 0;
      compact.whole = compact.whole && all;
      std::vector<std::string> names;
      for (const IndexTerm& term : position.terms)
        names.push_back(graph.dims[op.space[as_index(term.index)].at()].name);
      compact.dims.push_back(all                          ? dims[axis]
                             : position.terms.empty()     ? builder.unit()
                             : position.terms.size() == 1 ? op.space[as_index(position.index())]
                                                          : builder.dim(join(names, "*"), digits));
      continue;
    }
    compact.whole = false;
    for (const IndexTerm& term : sorted_terms(position)) {
      compact.axes.emplace_back(term.index);
      compact.dims.push_back(op.space[as_index(term.index)]);
    }
  }
  return compact;
}

Contribution place(BackwardBuilder& builder, const Operator& op, const Access& operand, TensorId compact,
                   const GradientNames& names) {
  Placer placer(builder, compact, names);
  Contribution made;
  bool whole = true;
  const size_t rank = operand.axes.size();
  for (size_t axis = 0; axis < rank; ++axis) {
    const Position& position = operand.axes[axis];
    int64_t first = position.offset;
    if (digits_of(builder.graph(), op, position) == 0) {
      const Terms terms = sorted_terms(position);
      for (size_t k = 0; k < terms.size(); ++k) {
        if (terms[k].stride > 0) continue;
        first += terms[k].stride * (placer.extent(axis + k) - 1);
        placer.reverse(axis + k);
      }
      if (std::abs(terms[0].stride) > 1) placer.dilate(axis, std::abs(terms[0].stride));
      for (size_t k = 1; k < terms.size(); ++k) {
        const int64_t stride = std::abs(terms[k].stride);
        stride == placer.extent(axis) ? placer.merge(axis) : placer.fold(axis, stride);
      }
    }
    made.first.push_back(first);
    const Graph& graph = builder.graph();
    const int64_t extent = graph.extent(graph.tensor(operand.tensor).dims[axis]);
    whole = whole && first == 0 && placer.extent(axis) == extent;
  }
  made.tensor = placer.current();
  if (whole) made.first.clear();
  return made;
}

std::vector<TensorId> join_parts(BackwardBuilder& builder, TensorId like, const std::vector<Contribution>& parts,
                                 const GradientNames& names) {
  std::vector<TensorId> whole;
  std::vector<std::vector<Contribution>> sets;
  for (const Contribution& part : parts) {
    if (part.first.empty()) {
      whole.push_back(part.tensor);
      continue;
    }
    auto fits = std::find_if(sets.begin(), sets.end(), [&](const std::vector<Contribution>& set) {
      return set.size() < kMostJoined && std::none_of(set.begin(), set.end(), [&](const Contribution& other) {
               return overlap(region_of(builder.graph(), like, part), region_of(builder.graph(), like, other));
             });
    });
    if (fits == sets.end()) fits = sets.insert(sets.end(), std::vector<Contribution>());
    fits->push_back(part);
  }
  for (const std::vector<Contribution>& set : sets) {
    const std::vector<DimId> dims = builder.graph().tensor(like).dims;
    Operator join = BackwardBuilder::over(OperatorKind::join, dims);
    for (const Contribution& part : set) {
      Access input{part.tensor, in_order(dims.size())};
      join.regions.push_back(region_of(builder.graph(), like, part));
      for (size_t axis = 0; axis < dims.size(); ++axis) input.axes[axis].offset = -part.first[axis];
      join.inputs.push_back(std::move(input));
    }
    const std::vector<Position> axes = in_order(dims.size());
    const DType dtype = builder.graph().tensor(like).dtype;
    whole.push_back(builder.emit(std::move(join), names.op, names.tensor, dtype, dims, axes));
  }
  return whole;
}

JoinPart join_part(BackwardBuilder& builder, const Operator& join, size_t k, const Access& g) {
  const Access& operand = join.inputs[k];
  JoinPart part{BackwardBuilder::over(OperatorKind::copy, {}), {operand.tensor, {}}, {g.tensor, {}}};
  std::vector<Position> by;
  for (size_t index = 0; index < join.space.size(); ++index) {
    const DimId dim = join.space[index];
    const Range& range = join.regions[k][index];
    part.op.space.push_back(builder.dim_like(dim, range.length()));
    by.emplace_back(std::vector<IndexTerm>{{static_cast<int>(index), 1}}, range.first);
  }
  part.op.reduced.resize(part.op.space.size(), false);
  part.op.name = join.name;
  for (const Position& axis : operand.axes) part.operand.axes.push_back(substituted(axis, by));
  for (const Position& axis : g.axes) part.g.axes.push_back(substituted(axis, by));
  return part;
}

}  // namespace millrace
