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
  if (!is_differentiated()) return nullptr;
  for (auto match : {&BackwardMatch::match_recomputed, &BackwardMatch::match_values_gradient,
                     &BackwardMatch::match_softmax_gradients, &BackwardMatch::match_chain_gradients,
                     &BackwardMatch::match_score_gradients, &BackwardMatch::match_term_gradient}) {
    if (const char* const reason = (this->*match)()) return reason;
  }
  const bool complete = d_path_.empty() ? made_.d_v.tensor.valid() : d_scores_.valid() || d_term_.valid();
  return complete ? nullptr : kOtherGradients;
}

bool BackwardMatch::is_differentiated() const {
  const auto is_read = [&](TensorId tensor) { return !readers_of(tensor, Pass::backward).empty(); };
  return std::any_of(inside_.begin(), inside_.end(), is_read) ||
         (made_.mask.tensor.valid() && is_read(made_.mask.tensor));
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

bool BackwardMatch::take_output_gradient(OperatorId contraction, size_t input, const Roles& indices) {
  const Access& gradient = op(contraction).inputs[input];
  const std::optional<Roles> axes = roles_along(gradient, indices);
  const bool other = made_.d_o.tensor.valid() && made_.d_o.tensor != gradient.tensor;
  return axes && !other && note(made_.d_o, gradient.tensor, *axes, with_batch({kQueryRole, kValueRole}));
}

const char* BackwardMatch::match_values_gradient() {
  OperatorId d_values;
  TensorId weights;  // the tensor or copy that it reads
  for (const auto& tensor : copies_of(dropped())) {
    const OperatorId found = only(OperatorKind::contraction, tensor, Pass::backward);
    if (!found.valid()) continue;
    if (d_values.valid()) return kOtherGradients;
    d_values = found;
    weights = tensor;
  }
  if (!d_values.valid()) return nullptr;
  std::optional<Roles> indices = indices_of(d_values);
  if (!indices || op(d_values).inputs.size() > 2) return kOtherGradients;
  for (Role& role : *indices) role = role == kNoRole ? kValueRole : role;
  const size_t gradient = op(d_values).inputs[0].tensor == weights ? 1 : 0;
  const bool taken = is_reduced_exactly(op(d_values), *indices, queries_and_groups()) &&
                     take_output_gradient(d_values, gradient, *indices) &&
                     take_gradient(d_values, made_.d_v, with_batch_of_keys({kKeyRole, kValueRole}));
  return taken ? nullptr : kOtherGradients;
}

std::vector<TensorId> BackwardMatch::copies_of(TensorId forward) const {
  std::vector<TensorId> found = {forward};
  for (const auto& [copy, original] : recomputed_) {
    if (original == forward) found.push_back(copy);
  }
  return found;
}

OperatorId BackwardMatch::find_softmax_gradient() const {
  OperatorId found;
  for (const TensorId weights : copies_of(result_of(made_.softmax))) {
    for (const OperatorId reader : readers_of(weights, Pass::backward)) {
      if (op(reader).kind != OperatorKind::softmax_dx || op(reader).inputs[0].tensor != weights) continue;
      if (found.valid()) return {};
      found = reader;
    }
  }
  return found;
}

const char* BackwardMatch::match_softmax_gradients() {
  const OperatorId d_softmax = find_softmax_gradient();
  if (!d_softmax.valid()) return nullptr;
  std::optional<Roles> indices = add_to_chain(d_softmax);
  if (!indices || !is_reduced_exactly(op(d_softmax), *indices, {kKeyRole})) return kOtherGradients;
  made_.backward.push_back(d_softmax);
  const Access* gradient = &op(d_softmax).inputs[1];
  if (dropout_.valid()) {
    const OperatorId d_dropout = producers_[gradient->tensor.at()];
    if (!d_dropout.valid() || op(d_dropout).kind != OperatorKind::dropout_dx) return kOtherGradients;
    if (op(d_dropout).inputs[0].tensor != made_.mask.tensor) return kOtherGradients;
    indices = add_to_chain(d_dropout);
    if (!indices) return kOtherGradients;
    made_.backward.push_back(d_dropout);
    gradient = &op(d_dropout).inputs[1];
  }
  const std::optional<Roles> axes = roles_along(*gradient, *indices);
  if (!axes) return kOtherGradients;
  roles_[gradient->tensor] = *axes;
  inside_.insert(gradient->tensor);
  d_path_ = {result_of(d_softmax)};
  return match_weights_gradient(gradient->tensor);
}

const char* BackwardMatch::match_weights_gradient(TensorId d_weights) {
  const OperatorId contraction = producers_[d_weights.at()];
  if (!contraction.valid() || op(contraction).kind != OperatorKind::contraction) return kOtherGradients;
  const std::vector<Access>& inputs = op(contraction).inputs;
  if (inputs.size() != 2 || (inputs[0].tensor == made_.v.tensor) == (inputs[1].tensor == made_.v.tensor))
    return kOtherGradients;
  const std::optional<Roles> indices = indices_of(contraction);
  const bool taken = indices && is_reduced_exactly(op(contraction), *indices, {kValueRole}) &&
                     take_output_gradient(contraction, inputs[0].tensor == made_.v.tensor ? 1 : 0, *indices);
  if (!taken) return kOtherGradients;
  made_.backward.push_back(contraction);
  return nullptr;
}

const char* BackwardMatch::match_chain_gradients() {
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
    if (!d_q.valid() && !d_k.valid()) continue;
    d_scores_ = gradient;
    const auto take = [&](OperatorId contraction, AttentionTensor& into, const Roles& wanted) {
      return !contraction.valid() ||
             (same_scales(op(contraction), op(scores_)) && take_gradient(contraction, into, wanted));
    };
    const bool taken = take(d_q, made_.d_q, with_batch(with_inner({kQueryRole}))) &&
                       take(d_k, made_.d_k, with_batch_of_keys(with_inner({kKeyRole})));
    return taken ? nullptr : kOtherGradients;
  }
  return nullptr;
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
