#include "random/branches.h"

#include <cmath>
#include <cstdint>
#include <vector>

namespace millrace::random_programs {
namespace {

using Tangent = Dual<Bounded<53>>;

// The element of the accessed tensor at a point of the operator's space.
size_t element_at(const Graph& graph, const Access& access, const std::vector<int64_t>& point) {
  const std::vector<DimId>& dims = graph.tensor(access.tensor).dims;
  int64_t element = 0;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    int64_t position = access.axes[axis].offset;
    for (const IndexTerm& term : access.axes[axis].terms) position += term.stride * point[as_index(term.index)];
    element = element * graph.extent(dims[axis]) + position;
  }
  return static_cast<size_t>(element);
}

// Moves to the next point of the space; false after the last.
bool advance(const Graph& graph, const Operator& op, std::vector<int64_t>& point) {
  for (size_t k = point.size(); k-- > 0;) {
    if (++point[k] < graph.extent(op.space[k])) return true;
    point[k] = 0;
  }
  return false;
}

bool may_be_equal(const Bounded<53>& a, const Bounded<53>& b) {
  return std::abs(a.value - b.value) <= a.error + b.error;
}

bool undecided(const Tangent& a, const Tangent& b) {
  return may_be_equal(a.value, b.value) && !may_be_equal(a.tangent, b.tangent);
}

class Branches {
 public:
  Branches(const Graph& graph, const Values<Tangent>& values) : graph_(graph), values_(values) {}

  bool has_undecided(const Operator& op) const {
    switch (op.kind) {
      case OperatorKind::relu:
      case OperatorKind::absolute:
        return any_point(op, [&](const auto& point) { return undecided(input(op, 0, point), Tangent(0)); });
      case OperatorKind::maximum:
      case OperatorKind::minimum:
      case OperatorKind::less:
      case OperatorKind::less_equal:
      case OperatorKind::equal:
      case OperatorKind::not_equal:
        return any_point(op, [&](const auto& point) { return undecided(input(op, 0, point), input(op, 1, point)); });
      case OperatorKind::max:
      case OperatorKind::min:
        return any_point(op, [&](const auto& point) { return undecided(input(op, 0, point), output(op, point)); });
      default: return false;
    }
  }

 private:
  const Tangent& input(const Operator& op, size_t k, const std::vector<int64_t>& point) const {
    return values_[op.inputs[k].tensor.at()][element_at(graph_, op.inputs[k], point)];
  }

  const Tangent& output(const Operator& op, const std::vector<int64_t>& point) const {
    return values_[op.outputs[0].tensor.at()][element_at(graph_, op.outputs[0], point)];
  }

  template <class Test>
  bool any_point(const Operator& op, const Test& test) const {
    std::vector<int64_t> point(op.space.size(), 0);
    do {
      if (test(point)) return true;
    } while (advance(graph_, op, point));
    return false;
  }

  const Graph& graph_;
  const Values<Tangent>& values_;
};

}  // namespace

bool has_undecided_branch(const Graph& graph, const Values<Tangent>& values) {
  const Branches branches(graph, values);
  for (const Operator& op : graph.operators) {
    if (branches.has_undecided(op)) return true;
  }
  return false;
}

}  // namespace millrace::random_programs
