#include "random/branches.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "random/points.h"

namespace millrace::random_programs {
namespace {

using Tangent = Dual<Bounded<53>>;

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
      case OperatorKind::sign:
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
  // A join, which alone has points outside of its inputs, does not branch on values.
  const Tangent& input(const Operator& op, size_t k, const Point& point) const {
    return values_[op.inputs[k].tensor.at()][element_at(graph_, op.inputs[k], point).value()];
  }

  const Tangent& output(const Operator& op, const Point& point) const {
    return values_[op.outputs[0].tensor.at()][element_at(graph_, op.outputs[0], point).value()];
  }

  template <class Test>
  bool any_point(const Operator& op, const Test& test) const {
    const Point extents = extents_of(graph_, op.space);
    Point point(extents.size(), 0);
    do {
      if (test(point)) return true;
    } while (next_point(extents, point));
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
