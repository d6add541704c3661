#include "ir/attention_match.h"

namespace millrace {

bool AttentionMatch::is_statistic(OperatorId id) const {
  return op(id).kind == OperatorKind::log_sum_exp && readers_[result_of(id).at()].empty() &&
         !leaves_[result_of(id).at()];
}

std::vector<OperatorId> AttentionMatch::readers_of(TensorId tensor, Pass pass) const {
  std::vector<OperatorId> found;
  for (const OperatorId reader : readers_[tensor.at()]) {
    if (op(reader).pass == pass && !is_statistic(reader)) found.push_back(reader);
  }
  return found;
}

OperatorId AttentionMatch::only(OperatorKind kind, TensorId tensor, Pass pass) const {
  OperatorId found;
  for (const OperatorId reader : readers_of(tensor, pass)) {
    if (op(reader).kind != kind) continue;
    if (found.valid()) return {};
    found = reader;
  }
  return found;
}

bool AttentionMatch::note(AttentionTensor& into, TensorId tensor, const Roles& axes, const Roles& wanted) {
  if (!have_same_roles(axes, wanted)) return false;
  into.tensor = tensor;
  into.axes.batch.assign(made_.batch.size(), -1);
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const int at = static_cast<int>(axis);
    switch (axes[axis]) {
      case kQueryRole: into.axes.query = at; break;
      case kKeyRole: into.axes.key = at; break;
      case kInnerRole:
      case kValueRole: into.axes.column = at; break;
      case kOuterInnerRole: into.axes.outer_column = at; break;
      default: into.axes.batch[as_index(axes[axis])] = at;
    }
  }
  roles_[tensor] = axes;
  return into.axes.outer_column < 0 || into.axes.outer_column + 1 == into.axes.column;
}

Roles AttentionMatch::with_inner(Roles others) const {
  others.push_back(kInnerRole);
  if (made_.outer_inner.valid()) others.push_back(kOuterInnerRole);
  return others;
}

Roles AttentionMatch::with_batch(Roles others) const {
  for (size_t k = 0; k < made_.batch.size(); ++k) others.push_back(static_cast<Role>(k));
  return others;
}

Roles AttentionMatch::with_batch_of_keys(Roles others) const {
  for (size_t k = 0; k < made_.batch.size(); ++k) {
    if (std::find(groups_.begin(), groups_.end(), static_cast<Role>(k)) == groups_.end())
      others.push_back(static_cast<Role>(k));
  }
  return others;
}

Roles AttentionMatch::queries_and_groups() const {
  Roles roles = groups_;
  roles.push_back(kQueryRole);
  return roles;
}

std::optional<Roles> AttentionMatch::indices_of(OperatorId id) {
  Roles indices(op(id).space.size(), kNoRole);
  for (const std::vector<Access>* accesses : {&op(id).inputs, &op(id).outputs}) {
    for (const Access& access : *accesses) {
      const auto known = roles_.find(access.tensor);
      if (known != roles_.end() && !take_roles(access, known->second, indices)) return std::nullopt;
    }
  }
  return indices;
}

std::optional<Roles> AttentionMatch::add_to_chain(OperatorId id) {
  const std::optional<Roles> indices = indices_of(id);
  if (!indices || !have_same_roles(*indices, with_batch({kQueryRole, kKeyRole}))) return std::nullopt;
  for (const Access& output : op(id).outputs) {
    const std::optional<Roles> roles = roles_along(output, *indices);
    if (!roles || roles->size() != indices->size()) return std::nullopt;
    roles_[output.tensor] = *roles;
  }
  inside_.insert(result_of(id));
  return indices;
}

const char* AttentionMatch::read_by_others(const std::vector<OperatorId>& own, const std::set<Pass>& passes) const {
  for (const TensorId tensor : inside_) {
    if (leaves_[tensor.at()]) return "the caller needs one of its intermediate tensors";
    for (const OperatorId reader : readers_[tensor.at()]) {
      const bool statistic = is_statistic(reader) && tensor == made_.logits.tensor;
      if (!is_in(own, reader) && !statistic && passes.contains(op(reader).pass))
        return "another operator reads one of its intermediate tensors";
    }
  }
  return nullptr;
}

}  // namespace millrace
