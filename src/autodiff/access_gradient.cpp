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

// How many positions the indices of an axis count as digits, from zero on; 0 if they are not digits.
int64_t digits_of(const Graph& graph, const Operator& op, const Position& axis) {
  int64_t next = 1;
  for (const IndexTerm& term : sorted_terms(axis)) {
    const int64_t extent = graph.extent(op.space[as_index(term.index)]);
    if (extent > 1 && term.stride != next) return 0;
    next *= extent;
  }
  return next;
}

// One axis of an operand while its gradient is computed: axes of the current tensor, from `first` on, one per term.
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

  // Puts stride - 1 zeros after each element of an axis.
  void dilate(size_t axis, int64_t stride) {
    const int64_t points = extent(axis);
    Operator join = over_current(OperatorKind::join);
    const auto zeros = static_cast<int>(axis) + 1;  // the new index
    join.space.insert(join.space.begin() + zeros, builder_.dim(concat(stride), stride));
    join.reduced.push_back(false);
    Access input{current_, {}};
    std::vector<Position> output;
    for (int k = 0; k < static_cast<int>(join.space.size()); ++k) {
      if (k == zeros) continue;
      const bool dilated = k == static_cast<int>(axis);
      input.axes.push_back(dilated ? Position({{k, 1}, {zeros, points}}, 0) : Position(k));
      output.push_back(dilated ? Position({{k, stride}, {zeros, 1}}, 0) : Position(k));
    }
    join.inputs.push_back(std::move(input));
    current_ = builder_.emit(std::move(join), names_.op, names_.tensor, dtype(), output);
  }

  // Sums axis + 1 into axis: position v of `axis` and j of the next are at v + stride · j.
  void fold(size_t axis, int64_t stride) {
    const int64_t steps = extent(axis + 1);
    const int64_t margin = stride * (steps - 1);
    pad(axis, margin, margin);
    const int64_t padded = extent(axis);
    Operator sum = over_current(OperatorKind::sum);
    const std::string& name = builder_.graph().dims[sum.space[axis].at()].name;
    sum.space[axis] = builder_.dim(name, padded - margin);
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

  void pad(size_t axis, int64_t before, int64_t after) {
    const int64_t points = extent(axis);
    if (before == 0 && after == 0) return;
    Operator join = over_current(OperatorKind::join);
    const std::string& name = builder_.graph().dims[join.space[axis].at()].name;
    join.space[axis] = builder_.dim(name, before + points + after);
    Access input{current_, in_order(join.space.size())};
    input.axes[axis].offset = -before;
    join.inputs.push_back(std::move(input));
    emit_plain(std::move(join));
  }

  BackwardBuilder& builder_;
  TensorId current_;
  const GradientNames& names_;
};

bool overlap(const Graph& graph, const Contribution& one, const Contribution& other) {
  for (size_t axis = 0; axis < one.first.size(); ++axis) {
    const int64_t end = one.first[axis] + graph.extent(graph.tensor(one.tensor).dims[axis]);
    const int64_t other_end = other.first[axis] + graph.extent(graph.tensor(other.tensor).dims[axis]);
    if (end <= other.first[axis] || other_end <= one.first[axis]) return false;
  }
  return true;
}

}  // namespace

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
      compact.axes.push_back({position.terms, 0});
      const bool all = digits == graph.extent(dims[axis]) && position.offset == 0;
      compact.whole = compact.whole && all;
      std::vector<std::string> names;
      for (const IndexTerm& term : position.terms)
        names.push_back(graph.dims[op.space[as_index(term.index)].at()].name);
      compact.dims.push_back(all                          ? dims[axis]
                             : position.terms.empty()     ? builder.unit()
                             : position.terms.size() == 1 ? op.space[as_index(position.index())]
                                                          : builder.dim(join(names, "·"), digits));
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
               return overlap(builder.graph(), part, other);
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
      for (size_t axis = 0; axis < dims.size(); ++axis) input.axes[axis].offset = -part.first[axis];
      join.inputs.push_back(std::move(input));
    }
    const std::vector<Position> axes = in_order(dims.size());
    const DType dtype = builder.graph().tensor(like).dtype;
    whole.push_back(builder.emit(std::move(join), names.op, names.tensor, dtype, dims, axes));
  }
  return whole;
}

namespace {

// Whether the position's indices are digits, of which the outermost may be shifted: then each position of the operand's
// axis has one digit for each index.
bool are_aligned(const Graph& graph, const Operator& op, const Position& position, int64_t extent) {
  if (position.terms.size() < 2) return true;
  const Terms terms = sorted_terms(position);
  const int64_t sign = terms[0].stride < 0 ? -1 : 1;
  int64_t next = 1;
  for (size_t k = 0; k < terms.size(); ++k) {
    if (terms[k].stride != sign * next) return false;
    if (k + 1 < terms.size()) next *= graph.extent(op.space[as_index(terms[k].index)]);
  }
  const int64_t first = sign > 0 ? position.offset : extent - 1 - position.offset;  // reversed: from the end
  return first % next == 0 && extent % next == 0;
}

// A join over merged indices: those of each axis of an operand that are not aligned become one.
struct MergedJoin {
  Operator op;     // only its space is used
  Access operand;  // by the merged indices
  Access g;        // of a copy of the gradient with merged axes
};

MergedJoin merge_indices(BackwardBuilder& builder, const Operator& op, const Access& operand, const Access& g,
                         const GradientNames& names) {
  const Graph& graph = builder.graph();
  std::map<int, int> axis_of;  // of the indices that are merged
  for (size_t axis = 0; axis < operand.axes.size(); ++axis) {
    const int64_t extent = graph.extent(graph.tensor(operand.tensor).dims[axis]);
    if (are_aligned(graph, op, operand.axes[axis], extent)) continue;
    for (const IndexTerm& term : operand.axes[axis].terms) axis_of[term.index] = static_cast<int>(axis);
  }
  MergedJoin merged{BackwardBuilder::over(OperatorKind::join, {}), operand, g};
  if (axis_of.empty()) {
    merged.op = op;
    return merged;
  }
  // The copy runs along all indices: first the free ones, then those of each merged axis, outermost first.
  Operator copy = BackwardBuilder::over(OperatorKind::copy, {});
  std::vector<Position> in_copy(op.space.size());
  std::vector<Position> in_merged(op.space.size());
  std::vector<Position> output;
  const auto add = [&](int index) {
    const auto here = static_cast<int>(copy.space.size());
    in_copy[as_index(index)] = Position(here);
    copy.space.push_back(op.space[as_index(index)]);
    return here;
  };
  for (int index = 0; index < static_cast<int>(op.space.size()); ++index) {
    if (axis_of.contains(index)) continue;
    in_merged[as_index(index)] = Position(static_cast<int>(merged.op.space.size()));
    merged.op.space.push_back(op.space[as_index(index)]);
    output.emplace_back(add(index));
  }
  for (size_t axis = 0; axis < operand.axes.size(); ++axis) {
    Terms terms = sorted_terms(operand.axes[axis]);
    if (terms.empty() || !axis_of.contains(terms[0].index)) continue;
    std::reverse(terms.begin(), terms.end());
    int64_t extent = 1;
    std::vector<std::string> dims;
    for (const IndexTerm& term : terms) {
      extent *= graph.extent(op.space[as_index(term.index)]);
      dims.push_back(graph.dims[op.space[as_index(term.index)].at()].name);
    }
    Position digits;
    int64_t stride = extent;
    for (const IndexTerm& term : terms) {
      stride /= graph.extent(op.space[as_index(term.index)]);
      digits.terms.push_back({add(term.index), stride});
    }
    output.push_back(std::move(digits));
    const int64_t sign = terms[0].stride < 0 ? -1 : 1;
    merged.operand.axes[axis] = Position({{static_cast<int>(merged.op.space.size()), sign}}, operand.axes[axis].offset);
    merged.op.space.push_back(builder.dim(join(dims, "·"), extent));
  }
  for (size_t axis = 0; axis < operand.axes.size(); ++axis) {
    const Position& position = operand.axes[axis];
    if (!position.terms.empty() && axis_of.contains(position.terms[0].index)) continue;
    merged.operand.axes[axis] = substituted(position, in_merged);
  }
  merged.op.reduced.resize(merged.op.space.size(), false);
  copy.reduced.resize(copy.space.size(), false);
  Access input{g.tensor, {}};
  for (const Position& axis : g.axes) input.axes.push_back(substituted(axis, in_copy));
  copy.inputs.push_back(std::move(input));
  const DType dtype = graph.tensor(g.tensor).dtype;
  const std::vector<DimId> dims = merged.op.space;
  merged.g = {builder.emit(std::move(copy), names.op, names.tensor, dtype, dims, output), in_order(dims.size())};
  return merged;
}

using Ranges = std::vector<Range>;  // one per index

// Takes `other` away from an end of `ranges`; false if what remains is not a box.
bool subtract(const Ranges& other, Ranges& ranges) {
  std::optional<size_t> uncovered;
  for (size_t index = 0; index < ranges.size(); ++index) {
    if (other[index].last < ranges[index].first || other[index].first > ranges[index].last) return true;
    if (other[index].first <= ranges[index].first && other[index].last >= ranges[index].last) continue;
    if (uncovered) return false;
    uncovered = index;
  }
  if (!uncovered) return false;
  Range& range = ranges[*uncovered];
  const Range& taken = other[*uncovered];
  if (taken.first <= range.first)
    range.first = taken.last + 1;
  else if (taken.last >= range.last)
    range.last = taken.first - 1;
  else
    return false;
  return true;
}

// Where the join takes its input k: where it is inside and none before it is. A box, since the parts of a concatenation
// are boxes.
Ranges region_of(const Graph& graph, const Operator& op, size_t k) {
  Ranges region = inside_ranges(graph, op, op.inputs[k]);
  std::vector<Ranges> before;
  for (size_t earlier = 0; earlier < k; ++earlier) before.push_back(region_of(graph, op, earlier));
  for (bool changes = true; changes;) {
    const Ranges old = region;
    for (const Ranges& taken : before) subtract(taken, region);
    changes = !std::equal(old.begin(), old.end(), region.begin(),
                          [](const Range& l, const Range& r) { return l.first == r.first && l.last == r.last; });
  }
  return region;
}

}  // namespace

JoinPart join_part(BackwardBuilder& builder, const Operator& join, size_t k, const Access& join_g,
                   const GradientNames& names) {
  const Graph& graph = builder.graph();
  const MergedJoin merged = merge_indices(builder, join, join.inputs[k], join_g, names);
  Ranges region;
  if (merged.g.tensor == join_g.tensor) {
    region = region_of(graph, join, k);
  } else {
    region = inside_ranges(graph, merged.op, merged.operand);
  }
  JoinPart part{BackwardBuilder::over(OperatorKind::copy, {}), {merged.operand.tensor, {}}, {merged.g.tensor, {}}};
  std::vector<Position> by;
  for (size_t index = 0; index < region.size(); ++index) {
    const DimId dim = merged.op.space[index];
    const int64_t points = region[index].last - region[index].first + 1;
    const std::string name = graph.dims[dim.at()].name;
    part.op.space.push_back(points == graph.extent(dim) ? dim : builder.dim(name, points));
    by.push_back(Position({{static_cast<int>(index), 1}}, region[index].first));
  }
  part.op.reduced.resize(part.op.space.size(), false);
  part.op.name = join.name;
  for (const Position& axis : merged.operand.axes) part.operand.axes.push_back(substituted(axis, by));
  for (const Position& axis : merged.g.axes) part.g.axes.push_back(substituted(axis, by));
  return part;
}

}  // namespace millrace
