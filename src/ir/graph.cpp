#include "ir/graph.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "ir/distinct_sums.h"

namespace millrace {

bool is_size(const Dim& dim) {
  return dim.name != std::to_string(dim.extent) && dim.name.find_first_of(":*.") == std::string::npos;
}

std::string resized_name(const Dim& dim, int64_t extent) {
  const std::string number = std::to_string(extent);
  if (dim.name == std::to_string(dim.extent)) return number;
  return dim.name.substr(0, dim.name.find(':')) + ":" + number;
}

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

bool takes_diagonal(const Access& access) {
  std::set<int> seen;
  for (const Position& axis : access.axes) {
    for (const IndexTerm& term : axis.terms) {
      if (!seen.insert(term.index).second) return true;
    }
  }
  return false;
}

bool takes_partial_diagonal(const Graph& graph, const Operator& op, const Access& access) {
  return takes_diagonal(access) && !is_plain(graph, op, access);
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

Range range_of(const Position& position, const Region& region) {
  Range range{position.offset, position.offset};
  for (const IndexTerm& term : position.terms) {
    const Range& index = region[as_index(term.index)];
    range.first += term.stride * (term.stride > 0 ? index.first : index.last);
    range.last += term.stride * (term.stride > 0 ? index.last : index.first);
  }
  return range;
}

Region all_points(const Graph& graph, const Operator& op) {
  Region region;
  for (const DimId dim : op.space) region.push_back({0, graph.extent(dim) - 1});
  return region;
}

Region points_of_input(const Graph& graph, const Operator& op, size_t input) {
  return op.kind == OperatorKind::join ? op.regions[input] : all_points(graph, op);
}

bool overlap(const Region& one, const Region& other) {
  for (size_t index = 0; index < one.size(); ++index) {
    if (one[index].last < other[index].first || other[index].last < one[index].first) return false;
  }
  return true;
}

Range range_of(const Graph& graph, const Operator& op, const Position& position) {
  return range_of(position, all_points(graph, op));
}

namespace {

// How many positions on an axis the access touches.
int64_t positions_touched(const Position& position, const Region& region, int64_t extent) {
  std::vector<Progression> terms;
  for (const IndexTerm& term : position.terms)
    terms.push_back({std::abs(term.stride), region[as_index(term.index)].length()});
  const int64_t count = distinct_sums(std::move(terms));
  const Range range = range_of(position, region);
  const int64_t inside = std::min(range.last, extent - 1) - std::max<int64_t>(range.first, 0) + 1;
  return std::clamp<int64_t>(std::min(count, inside), 0, extent);
}

}  // namespace

int64_t words_touched(const Graph& graph, const Operator& op, const Access& access) {
  if (op.kind == OperatorKind::gather && access == op.inputs[0])
    return std::min(words_of(graph, access.tensor), points_of(graph, op));
  return words_touched(graph, all_points(graph, op), access);
}

int64_t words_touched(const Graph& graph, const Region& region, const Access& access) {
  if (words_of(graph, access.tensor) == 0) return 0;
  int64_t words = 1;
  for (size_t axis = 0; axis < access.axes.size(); ++axis)
    words *= positions_touched(access.axes[axis], region, graph.extent(graph.tensor(access.tensor).dims[axis]));
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

// Whether both touch the same elements: by the same positions along the same ranges, with the same ids.
bool touch_the_same(const Graph& graph, const TensorUse& a, const TensorUse& b) {
  if (a.access() != b.access()) return false;
  if (is_gathered_table(*a.op, a.input) != is_gathered_table(*b.op, b.input)) return false;
  if (is_gathered_table(*a.op, a.input))
    return a.op->inputs == b.op->inputs && all_points(graph, *a.op) == all_points(graph, *b.op);
  const Region points_a = points_of_input(graph, *a.op, a.input);
  const Region points_b = points_of_input(graph, *b.op, b.input);
  for (const Position& position : a.access().axes) {
    for (const IndexTerm& term : position.terms) {
      if (points_a[as_index(term.index)] != points_b[as_index(term.index)]) return false;
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
    words += is_gathered_table(*use.op, use.input)
                 ? words_touched(graph, *use.op, use.access())
                 : words_touched(graph, points_of_input(graph, *use.op, use.input), use.access());
  }
  return uses.empty() ? 0 : std::min(words, words_of(graph, uses.front().access().tensor));
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
