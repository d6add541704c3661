#include "reference/input_roles.h"

#include <algorithm>

namespace millrace {
namespace {

using Kind = InputRole::Kind;

class RoleFinder {
 public:
  explicit RoleFinder(const Graph& graph)
      : graph_(graph), producers_(producers_of(graph)), roles_(graph.tensors.size()), uses_(graph.dims.size()) {
    find_given();
    count_dims();
  }

  std::vector<InputRole> run() {
    for (const Operator& op : graph_.operators) {
      if (op.pass == Pass::forward) look_at(op);
    }
    for (size_t k = graph_.operators.size(); k-- > 0;) pass_on(graph_.operators[k]);
    return roles_;
  }

 private:
  static bool takes_values(const Operator& op) {
    return op.kind == OperatorKind::copy || op.kind == OperatorKind::join;
  }
  bool is_given(const Access& access) const { return given_[access.tensor.at()]; }

  // Arguments, and copies of them.
  void find_given() {
    for (const Tensor& tensor : graph_.tensors)
      given_.push_back(tensor.role == TensorRole::argument && is_floating(tensor.dtype));
    for (const Operator& op : graph_.operators) {
      if (takes_values(op))
        given_[op.outputs[0].tensor.at()] =
            std::all_of(op.inputs.begin(), op.inputs.end(), [&](const Access& input) { return is_given(input); });
    }
  }

  // How many computed tensors have each dimension.
  void count_dims() {
    for (const Operator& op : graph_.operators) {
      if (op.pass != Pass::forward) continue;
      for (const DimId dim : graph_.tensor(op.outputs[0].tensor).dims) ++uses_[dim.at()];
    }
  }
  int64_t most_uses(TensorId tensor) const {
    int64_t most = 0;
    for (const DimId dim : graph_.tensor(tensor).dims) most = std::max(most, uses_[dim.at()]);
    return most;
  }

  void look_at(const Operator& op) {
    switch (op.kind) {
      case OperatorKind::contraction:
        for (const size_t side : {size_t{0}, size_t{1}}) {
          if (is_weight(op, side)) assign(op.inputs[side], {Kind::weight, fan_in_of(op)});
        }
        return;
      case OperatorKind::layernorm: assign(op.inputs[2], {Kind::bias, 1}); [[fallthrough]];
      case OperatorKind::rmsnorm: return assign(op.inputs[1], {Kind::factor, 1});
      case OperatorKind::multiply: return assign_broadcast(op, Kind::factor);
      case OperatorKind::add: return assign_broadcast(op, Kind::bias);
      default: return;
    }
  }

  void assign(const Access& access, InputRole role) {
    InputRole& known = roles_[access.tensor.at()];
    if (!is_given(access) || known.kind > role.kind) return;
    known = {role.kind, std::max(known.fan_in, role.fan_in)};
  }

  void assign_broadcast(const Operator& op, Kind kind) {
    for (const size_t side : {size_t{0}, size_t{1}}) {
      if (is_given(op.inputs[1 - side]) || graph_.tensor(op.inputs[side].tensor).dims.empty()) continue;
      bool whole = true;
      for (size_t index = 0; index < op.space.size(); ++index)
        whole = whole && (runs_along(op.inputs[side], index) || graph_.extent(op.space[index]) == 1);
      if (!whole) assign(op.inputs[side], {kind, 1});
    }
  }

  int64_t fan_in_of(const Operator& op) const {
    int64_t product = 1;
    for (size_t index = 0; index < op.space.size(); ++index)
      product *= op.reduced[index] ? graph_.extent(op.space[index]) : 1;
    return product;
  }

  bool is_weight(const Operator& op, size_t side) const {
    const Access& access = op.inputs[side];
    const Access& other = op.inputs[1 - side];
    if (!is_given(access) || access.tensor == other.tensor || averages(other.tensor)) return false;
    for (size_t index = 0; index < op.space.size(); ++index) {
      if (!op.reduced[index] && graph_.extent(op.space[index]) > 1 && runs_along(access, index) &&
          runs_along(other, index))
        return false;
    }
    if (!is_given(other)) return true;
    const int64_t own = most_uses(access.tensor);
    const int64_t others = most_uses(other.tensor);
    return own == others ? access.tensor.at() > other.tensor.at() : own < others;
  }

  // Whether the tensor is a softmax. A tensor that is contracted with it is averaged, and keeps its size.
  bool averages(TensorId tensor) const {
    const OperatorId producer = producers_[tensor.at()];
    if (!producer.valid()) return false;
    const Operator& op = graph_.operators[producer.at()];
    if (op.kind == OperatorKind::dropout || op.kind == OperatorKind::copy) return averages(op.inputs[0].tensor);
    return op.kind == OperatorKind::softmax;
  }

  void pass_on(const Operator& op) {
    const InputRole role = roles_[op.outputs[0].tensor.at()];
    if (!takes_values(op) || role.kind == Kind::activation) return;
    for (const Access& input : op.inputs) assign(input, role);
  }

  const Graph& graph_;
  const std::vector<OperatorId> producers_;
  std::vector<InputRole> roles_;
  std::vector<int64_t> uses_;
  std::vector<bool> given_;
};

}  // namespace

std::vector<InputRole> input_roles(const Graph& graph) { return RoleFinder(graph).run(); }

}  // namespace millrace
