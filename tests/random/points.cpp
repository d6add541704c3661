#include "random/points.h"

#include <algorithm>
#include <set>
#include <utility>

namespace millrace::random_programs {
namespace {

int64_t position_at(const Position& position, const Point& point) {
  int64_t at = position.offset;
  for (const IndexTerm& term : position.terms) at += term.stride * point[as_index(term.index)];
  return at;
}

// How many positions an input has on an axis where it is read.
int64_t positions_on(const Graph& graph, const Operator& op, size_t input, size_t axis) {
  const Position& position = op.inputs[input].axes[axis];
  Point extents(op.space.size(), 1);
  for (const IndexTerm& term : position.terms)
    extents[as_index(term.index)] = graph.extent(op.space[as_index(term.index)]);
  std::set<int64_t> positions;
  Point point(op.space.size(), 0);
  do {
    bool read = true;
    for (const IndexTerm& term : position.terms) {
      const size_t k = as_index(term.index);
      if (op.kind != OperatorKind::join) continue;
      read = read && point[k] >= op.regions[input][k].first && point[k] <= op.regions[input][k].last;
    }
    if (read) positions.insert(position_at(position, point));
  } while (next_point(extents, point));
  return static_cast<int64_t>(positions.size());
}

}  // namespace

Point extents_of(const Graph& graph, const std::vector<DimId>& space) {
  Point extents;
  for (const DimId dim : space) extents.push_back(graph.extent(dim));
  return extents;
}

bool next_point(const Point& extents, Point& point) {
  for (size_t k = point.size(); k-- > 0;) {
    if (++point[k] < extents[k]) return true;
    point[k] = 0;
  }
  return false;
}

bool is_in(const Region& region, const Point& point) {
  for (size_t k = 0; k < point.size(); ++k) {
    if (point[k] < region[k].first || point[k] > region[k].last) return false;
  }
  return true;
}

std::optional<size_t> element_at(const Graph& graph, const Access& access, const Point& point) {
  const std::vector<DimId>& dims = graph.tensor(access.tensor).dims;
  int64_t element = 0;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    const int64_t at = position_at(access.axes[axis], point);
    if (at < 0 || at >= graph.extent(dims[axis])) return std::nullopt;
    element = element * graph.extent(dims[axis]) + at;
  }
  return static_cast<size_t>(element);
}

int64_t words_read(const Graph& graph, const std::vector<OperatorId>& members, TensorId tensor) {
  std::set<std::pair<std::vector<Position>, Region>> seen;  // with the ranges of the indices
  std::vector<const Operator*> gathers;                     // from the tensor
  int64_t words = 0;
  for (const OperatorId member : members) {
    const Operator& op = graph.operators[member.at()];
    for (size_t number = 0; number < op.inputs.size(); ++number) {
      const Access& input = op.inputs[number];
      if (input.tensor != tensor) continue;
      if (op.kind == OperatorKind::gather && number == 0) {
        // Each point reads an element, unless there are fewer; the same ids select the same.
        int64_t points = 1;
        for (const int64_t extent : extents_of(graph, op.space)) points *= extent;
        const auto same = [&](const Operator* other) {
          return other->inputs == op.inputs && extents_of(graph, other->space) == extents_of(graph, op.space);
        };
        if (std::any_of(gathers.begin(), gathers.end(), same)) continue;
        gathers.push_back(&op);
        words += std::min(points, words_of(graph, tensor));
        continue;
      }
      Region ranges;
      for (size_t k = 0; k < op.space.size(); ++k) {
        const millrace::Range all{0, graph.extent(op.space[k]) - 1};
        if (runs_along(input, k)) ranges.push_back(op.kind == OperatorKind::join ? op.regions[number][k] : all);
      }
      if (!seen.emplace(input.axes, ranges).second) continue;
      int64_t elements = 1;
      for (size_t axis = 0; axis < input.axes.size(); ++axis) elements *= positions_on(graph, op, number, axis);
      words += elements;
    }
  }
  return std::min(words, words_of(graph, tensor));
}

}  // namespace millrace::random_programs
