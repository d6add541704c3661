#include "ir/graph.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>

namespace millrace {

int64_t Position::stride_along(int index) const {
  for (const IndexTerm& term : terms) {
    if (term.index == index) return term.stride;
  }
  return 0;
}

Position substituted(const Position& position, const std::vector<Position>& by) {
  std::map<int, int64_t> strides;
  Position result;
  result.offset = position.offset;
  for (const IndexTerm& term : position.terms) {
    const Position& inner = by[as_index(term.index)];
    result.offset += term.stride * inner.offset;
    for (const IndexTerm& part : inner.terms) strides[part.index] += term.stride * part.stride;
  }
  for (const auto& [index, stride] : strides) {
    if (stride != 0) result.terms.push_back({index, stride});
  }
  return result;
}

bool is_plain(const Graph& graph, const Operator& op, const Access& access) {
  const std::vector<DimId>& dims = graph.tensor(access.tensor).dims;
  for (size_t axis = 0; axis < access.axes.size(); ++axis) {
    const Position& position = access.axes[axis];
    const int64_t positions = position.terms.empty() ? 1 : graph.extent(op.space[as_index(position.index())]);
    if (!position.is_index() || positions != graph.extent(dims[axis])) return false;
  }
  return true;
}

bool has_plain_accesses(const Graph& graph, const Operator& op) {
  const auto plain = [&](const Access& access) { return is_plain(graph, op, access); };
  return std::all_of(op.inputs.begin(), op.inputs.end(), plain) &&
         std::all_of(op.outputs.begin(), op.outputs.end(), plain);
}

bool is_gathered_table(const Operator& op, size_t input) { return op.kind == OperatorKind::gather && input == 0; }

bool is_whole(const Graph& graph, const Operator& op, const Access& access) {
  return access.axes == in_order(op.space.size()) && is_plain(graph, op, access);
}

std::vector<int> indices_of(const Access& access) {
  std::vector<int> indices;
  for (const Position& axis : access.axes) indices.push_back(axis.index());
  return indices;
}

bool runs_along(const Access& access, size_t index) {
  return std::any_of(access.axes.begin(), access.axes.end(),
                     [&](const Position& axis) { return axis.stride_along(static_cast<int>(index)) != 0; });
}

std::vector<Position> in_order(size_t count) {
  std::vector<Position> axes;
  for (size_t index = 0; index < count; ++index) axes.emplace_back(static_cast<int>(index));
  return axes;
}

Range range_of(const Graph& graph, const Operator& op, const Position& position) {
  Range range{position.offset, position.offset};
  for (const IndexTerm& term : position.terms) {
    const int64_t reach = term.stride * (graph.extent(op.space[as_index(term.index)]) - 1);
    (reach < 0 ? range.first : range.last) += reach;
  }
  return range;
}

namespace {

using Ranges = std::vector<Range>;  // one per index

// The smallest and the largest position where the indices are in these ranges.
Range range_in(const Position& position, const Ranges& ranges) {
  Range range{position.offset, position.offset};
  for (const IndexTerm& term : position.terms) {
    const Range& index = ranges[as_index(term.index)];
    range.first += term.stride * (term.stride > 0 ? index.first : index.last);
    range.last += term.stride * (term.stride > 0 ? index.last : index.first);
  }
  return range;
}

// Whether the access may be inside its tensor where the indices are in these ranges.
bool may_be_inside(const Graph& graph, const Access& access, const Ranges& ranges) {
  for (size_t axis = 0; axis < access.axes.size(); ++axis) {
    const Range range = range_in(access.axes[axis], ranges);
    if (range.last < 0 || range.first >= graph.extent(graph.tensor(access.tensor).dims[axis])) return false;
  }
  return true;
}

Ranges all_ranges(const Graph& graph, const Operator& op) {
  Ranges ranges;
  for (const DimId dim : op.space) ranges.push_back({0, graph.extent(dim) - 1});
  return ranges;
}

// How many positions on an axis the access touches. Exact for one index, for digits of a number and for windows.
int64_t positions_touched(const Position& position, const Ranges& ranges, int64_t extent) {
  std::vector<IndexTerm> terms = position.terms;
  std::sort(terms.begin(), terms.end(),
            [](const IndexTerm& l, const IndexTerm& r) { return std::abs(l.stride) < std::abs(r.stride); });
  int64_t count = 1;
  int64_t reach = 0;
  int64_t unit = 0;
  for (const IndexTerm& term : terms) {
    const int64_t stride = std::abs(term.stride);
    const Range& index = ranges[as_index(term.index)];
    const int64_t points = index.last - index.first + 1;
    const bool overlaps = stride <= reach;
    unit = std::gcd(unit, stride);
    reach += stride * (points - 1);
    count = overlaps ? std::min(count * points, reach / unit + 1) : count * points;
  }
  const Range range = range_in(position, ranges);
  const int64_t inside = std::min(range.last, extent - 1) - std::max<int64_t>(range.first, 0) + 1;
  return std::clamp<int64_t>(std::min(count, inside), 0, extent);
}

}  // namespace

std::vector<Range> inside_ranges(const Graph& graph, const Operator& op, const Access& access) {
  Ranges ranges = all_ranges(graph, op);
  for (int round = 0; round < 2; ++round) {  // what one index excludes may exclude more of another
    for (Range& range : ranges) {
      const Range all = range;
      for (range.last = range.first; range.first < all.last && !may_be_inside(graph, access, ranges); ++range.first)
        range.last = range.first + 1;
      const int64_t first = range.first;
      for (range = {all.last, all.last}; range.last > first && !may_be_inside(graph, access, ranges); --range.last)
        range.first = range.last - 1;
      range.first = first;
    }
  }
  return ranges;
}

int64_t words_touched(const Graph& graph, const Operator& op, const Access& access) {
  if (words_of(graph, access.tensor) == 0) return 0;
  if (op.kind == OperatorKind::gather && access == op.inputs[0])
    return std::min(words_of(graph, access.tensor), points_of(graph, op));
  const Ranges ranges = op.kind == OperatorKind::join ? inside_ranges(graph, op, access) : all_ranges(graph, op);
  int64_t words = 1;
  for (size_t axis = 0; axis < access.axes.size(); ++axis)
    words *= positions_touched(access.axes[axis], ranges, graph.extent(graph.tensor(access.tensor).dims[axis]));
  return words;
}

int64_t elements_of(const Graph& graph, TensorId tensor) {
  int64_t elements = 1;
  for (const DimId dim : graph.tensor(tensor).dims) elements *= graph.extent(dim);
  return elements;
}

int64_t words_of(const Graph& graph, TensorId tensor) {
  const TensorRole role = graph.tensor(tensor).role;
  return role == TensorRole::scalar || role == TensorRole::constant ? 0 : elements_of(graph, tensor);
}

namespace {

// Whether both touch the same elements: by the same positions along indices of the same extents, with the same ids.
bool touch_the_same(const Graph& graph, const TensorUse& a, const TensorUse& b) {
  if (*a.access != *b.access) return false;
  const auto gathers = [](const TensorUse& use) {
    return use.op->kind == OperatorKind::gather && *use.access == use.op->inputs[0];
  };
  if (gathers(a) != gathers(b)) return false;
  if (gathers(a)) {
    const auto same_extent = [&](DimId l, DimId r) { return graph.extent(l) == graph.extent(r); };
    return a.op->inputs == b.op->inputs &&
           std::equal(a.op->space.begin(), a.op->space.end(), b.op->space.begin(), b.op->space.end(), same_extent);
  }
  for (const Position& position : a.access->axes) {
    for (const IndexTerm& term : position.terms) {
      const size_t index = as_index(term.index);
      if (graph.extent(a.op->space[index]) != graph.extent(b.op->space[index])) return false;
    }
  }
  return true;
}

}  // namespace

int64_t words_touched(const Graph& graph, const std::vector<TensorUse>& uses) {
  std::vector<TensorUse> seen;
  int64_t words = 0;
  for (const TensorUse& use : uses) {
    const bool again =
        std::any_of(seen.begin(), seen.end(), [&](const TensorUse& one) { return touch_the_same(graph, one, use); });
    if (again) continue;
    seen.push_back(use);
    words += words_touched(graph, *use.op, *use.access);
  }
  return uses.empty() ? 0 : std::min(words, words_of(graph, uses.front().access->tensor));
}

int64_t points_of(const Graph& graph, const Operator& op) {
  int64_t points = 1;
  for (const DimId dim : op.space) points *= graph.extent(dim);
  return points;
}

int64_t flop_of(const Graph& graph, const Operator& op) {
  const int64_t flop = info_of(op.kind).flop * points_of(graph, op);
  return op.kind == OperatorKind::scatter_add ? flop / graph.extent(op.space[as_index(op.gathered)]) : flop;
}

std::vector<OperatorId> producers_of(const Graph& graph) {
  std::vector<OperatorId> producers(graph.tensors.size());
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    for (const Access& output : graph.operators[k].outputs) producers[output.tensor.at()] = OperatorId(k);
  }
  return producers;
}

const Operator* dropout_of(const Graph& graph, TensorId mask) {
  for (const Operator& op : graph.operators) {
    if (op.kind == OperatorKind::dropout && op.outputs[1].tensor == mask) return &op;
  }
  return nullptr;
}

bool is_computed_boolean(const Graph& graph, TensorId tensor) {
  return graph.tensor(tensor).dtype == DType::boolean && graph.tensor(tensor).role == TensorRole::computed;
}

std::vector<std::vector<OperatorId>> readers_of(const Graph& graph) {
  std::vector<std::vector<OperatorId>> readers(graph.tensors.size());
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    for (const Access& input : graph.operators[k].inputs) {
      std::vector<OperatorId>& list = readers[input.tensor.at()];
      if (list.empty() || list.back() != OperatorId(k)) list.emplace_back(k);
    }
  }
  return readers;
}

}  // namespace millrace
