#include "ir/backward_match.h"

#include <algorithm>
#include <optional>

#include "ir/score_builder.h"

namespace millrace {
namespace {

bool same_scales(const Operator& one, const Operator& other) {
  return std::equal(one.inputs.begin() + 2, one.inputs.end(), other.inputs.begin() + 2, other.inputs.end(),
                    [](const Access& l, const Access& r) { return l.tensor == r.tensor; });
}

}  // namespace

const char* BackwardMatch::match_backward() {
  for (auto match : {&BackwardMatch::match_recomputed, &BackwardMatch::match_output_gradients,
                     &BackwardMatch::match_softmax_gradients, &BackwardMatch::match_chain_gradients,
                     &BackwardMatch::match_score_gradients, &BackwardMatch::match_term_gradient}) {
    if (const char* const reason = (this->*match)()) return reason;
  }
  return nullptr;
}

bool BackwardMatch::is_copy_of(TensorId tensor, TensorId forward) const {
  const auto copy = recomputed_.find(tensor);
  return (copy != recomputed_.end() ? copy->second : tensor) == forward;
}

bool BackwardMatch::repeats(const Operator& copy, const Operator& original) const {
  if (copy.kind != original.kind || copy.space != original.space || copy.reduced != original.reduced) return false;
  if (copy.value != original.value || copy.inputs.size() != original.inputs.size()) return false;
  for (size_t k = 0; k < copy.inputs.size(); ++k) {
    if (!is_copy_of(copy.inputs[k].tensor, original.inputs[k].tensor) || copy.inputs[k].axes != original.inputs[k].axes)
      return false;
  }
  return copy.outputs[0].axes == original.outputs[0].axes;
}

const char* BackwardMatch::match_recomputed() {
  std::vector<OperatorId> originals = {made_.softmax};
  for (const PathStep& step : path_) originals.push_back(step.op);
  for (size_t k = 0; k < graph_.operators.size(); ++k) {
    const OperatorId id(k);
    if (op(id).pass == Pass::forward) continue;
    for (const OperatorId original : originals) {
      if (!repeats(op(id), op(original))) continue;
      recomputed_[result_of(id)] = result_of(original);
      roles_[result_of(id)] = roles_.at(result_of(original));
      inside_.insert(result_of(id));
      made_.backward.push_back(id);
    }
  }
  return nullptr;
}

TensorId BackwardMatch::other_operand(OperatorId contraction, TensorId one) const {
  const std::vector<Access>& inputs = op(contraction).inputs;
  return inputs[inputs[0].tensor == one ? 1 : 0].tensor;
}

OperatorId BackwardMatch::contraction_of(TensorId one, TensorId other, const Roles& over) {
  for (const OperatorId id : readers_of(one, Pass::backward)) {
    if (op(id).kind != OperatorKind::contraction || one == other || other_operand(id, one) != other) continue;
    const std::optional<Roles> indices = indices_of(id);
    if (indices && is_reduced_exactly(op(id), *indices, over)) return id;
  }
  return {};
}

bool BackwardMatch::take_gradient(OperatorId contraction, AttentionTensor& into, const Roles& wanted) {
  const std::optional<Roles> indices = indices_of(contraction);
  const std::optional<Roles> axes = indices ? roles_along(op(contraction).outputs[0], *indices) : std::nullopt;
  if (!axes || !note(into, result_of(contraction), *axes, wanted)) return false;
  made_.backward.push_back(contraction);
  return true;
}

const char* BackwardMatch::match_output_gradients() {
  OperatorId d_values;
  TensorId weights;  // the tensor or copy that it reads
  for (const auto& tensor : copies_of(dropped())) {
    const OperatorId found = only(OperatorKind::contraction, tensor, Pass::backward);
    if (!found.valid()) continue;
    if (d_values.valid()) return kOtherGradients;
    d_values = found;
    weights = tensor;
  }
  if (!d_values.valid()) return "not all of its gradients are needed";
  const TensorId d_o = other_operand(d_values, weights);
  std::optional<Roles> indices = indices_of(d_values);
  if (!indices || op(d_values).inputs.size() > 2) return kOtherGradients;
  for (Role& role : *indices) role = role == kNoRole ? kValueRole : role;
  const Operator& d_values_op = op(d_values);
  const Access& gradient = d_values_op.inputs[d_values_op.inputs[0].tensor == d_o ? 0 : 1];
  const std::optional<Roles> axes = roles_along(gradient, *indices);
  if (!axes || !is_reduced_exactly(d_values_op, *indices, queries_and_groups()) ||
      !note(made_.d_o, d_o, *axes, with_batch({kQueryRole, kValueRole})) ||
      !take_gradient(d_values, made_.d_v, with_batch_of_keys({kKeyRole, kValueRole})))
    return kOtherGradients;
  d_chain_ = contraction_of(d_o, made_.v.tensor, {kValueRole});
  if (!d_chain_.valid()) return "not all of its gradients are needed";
  AttentionTensor d_weights;
  if (op(d_chain_).inputs.size() > 2 || !take_gradient(d_chain_, d_weights, with_batch({kQueryRole, kKeyRole})))
    return kOtherGradients;
  inside_.insert(d_weights.tensor);
  return nullptr;
}

std::vector<TensorId> BackwardMatch::copies_of(TensorId forward) const {
  std::vector<TensorId> found = {forward};
  for (const auto& [copy, original] : recomputed_) {
    if (original == forward) found.push_back(copy);
  }
  return found;
}

const char* BackwardMatch::match_softmax_gradients() {
  const auto match = [&](OperatorKind kind, OperatorId original, size_t gradient) {
    if (!original.valid()) return true;
    const OperatorId next = only(kind, result_of(d_chain_), Pass::backward);
    if (!next.valid() || op(next).inputs[gradient].tensor != result_of(d_chain_)) return false;
    const std::optional<Roles> indices = add_to_chain(next);
    if (!indices) return false;
    const Operator& next_op = op(next);
    if (kind == OperatorKind::dropout_dx && next_op.inputs[0].tensor != made_.mask.tensor) return false;
    if (kind == OperatorKind::softmax_dx && !(is_copy_of(next_op.inputs[0].tensor, result_of(made_.softmax)) &&
                                              is_reduced_exactly(next_op, *indices, {kKeyRole})))
      return false;
    made_.backward.push_back(next);
    d_chain_ = next;
    return true;
  };
  const bool matched =
      match(OperatorKind::dropout_dx, dropout_, 1) && match(OperatorKind::softmax_dx, made_.softmax, 1);
  return matched ? nullptr : kOtherGradients;
}

const char* BackwardMatch::match_chain_gradients() {
  d_path_ = {result_of(d_chain_)};
  for (size_t k = 0; k < d_path_.size(); ++k) {
    for (const OperatorId reader : readers_of(d_path_[k], Pass::backward)) {
      if (!applies_to_scores(op(reader).kind) || is_in(made_.backward, reader)) continue;
      if (!has_plain_accesses(graph_, op(reader)) || !add_to_chain(reader)) continue;
      made_.backward.push_back(reader);
      d_path_.push_back(result_of(reader));
    }
  }
  return nullptr;
}

const char* BackwardMatch::match_score_gradients() {
  for (const TensorId gradient : d_path_) {
    const OperatorId d_q = contraction_of(gradient, made_.k.tensor, {kKeyRole});
    const OperatorId d_k = contraction_of(gradient, made_.q.tensor, queries_and_groups());
    if (!d_q.valid() || !d_k.valid()) continue;
    if (!same_scales(op(d_q), op(scores_)) || !same_scales(op(d_k), op(scores_))) return kOtherGradients;
    d_scores_ = gradient;
    const bool taken = take_gradient(d_q, made_.d_q, with_batch(with_inner({kQueryRole}))) &&
                       take_gradient(d_k, made_.d_k, with_batch_of_keys(with_inner({kKeyRole})));
    return taken ? nullptr : kOtherGradients;
  }
  return "not all of its gradients are needed";
}

const char* BackwardMatch::match_term_gradient() {
  for (const TensorId gradient : d_path_) {
    for (const OperatorId reader : readers_of(gradient, Pass::backward)) {
      if (op(reader).kind != OperatorKind::sum) continue;
      if (d_term_.valid()) return "several terms of its scores have gradients";
      d_term_ = reader;
    }
  }
  if (!d_term_.valid()) return nullptr;
  const std::optional<Roles> indices = indices_of(d_term_);
  const std::optional<Roles> axes = indices ? roles_along(op(d_term_).outputs[0], *indices) : std::nullopt;
  if (!axes || !is_in(*axes, kQueryRole) || !is_in(*axes, kKeyRole) ||
      !note(made_.d_term, result_of(d_term_), *axes, *axes))
    return "the gradient of a term of its scores is summed over queries or keys";
  made_.backward.push_back(d_term_);
  return nullptr;
}

}  // namespace millrace
