#include "ir/forward_match.h"

#include <algorithm>
#include <array>

#include "ir/score_builder.h"

namespace millrace {

const char* ForwardMatch::match_forward() {
  for (auto match : {&ForwardMatch::check_accesses, &ForwardMatch::match_scores, &ForwardMatch::match_chain,
                     &ForwardMatch::match_output, &ForwardMatch::check_forward}) {
    if (const char* const reason = (this->*match)()) return reason;
  }
  return nullptr;
}

OperatorId ForwardMatch::find_scores(TensorId tensor) {
  constexpr size_t kLongestPath = 64;
  const OperatorId above = producers_[tensor.at()];
  if (!above.valid() || op(above).kind == OperatorKind::contraction) return above;
  if (!applies_to_scores(op(above).kind) || path_.size() > kLongestPath) return {};
  for (size_t input = 0; input < op(above).inputs.size(); ++input) {
    if (!runs_along_all(op(above), op(above).inputs[input])) continue;
    const OperatorId found = find_scores(op(above).inputs[input].tensor);
    if (!found.valid()) continue;
    path_.push_back({above, input});
    return found;
  }
  return {};
}

bool ForwardMatch::runs_along_all(const Operator& own, const Access& access) {
  for (size_t index = 0; index < own.space.size(); ++index) {
    if (!runs_along(access, index)) return false;
  }
  return true;
}

bool ForwardMatch::find_chain() {
  scores_ = find_scores(op(made_.softmax).inputs[0].tensor);
  if (!scores_.valid()) return false;
  TensorId weights = result_of(made_.softmax);
  dropout_ = only(OperatorKind::dropout, weights, Pass::forward);
  if (dropout_.valid()) weights = result_of(dropout_);
  output_ = only(OperatorKind::contraction, weights, Pass::forward);
  if (!output_.valid()) return false;
  made_.forward = {scores_, made_.softmax, output_};
  if (dropout_.valid()) made_.forward.push_back(dropout_);
  for (const PathStep& step : path_) made_.forward.push_back(step.op);
  return true;
}

const char* ForwardMatch::check_accesses() {
  const bool plain = std::all_of(made_.forward.begin(), made_.forward.end(),
                                 [&](OperatorId id) { return has_plain_accesses(graph_, op(id)); });
  return plain ? nullptr : "it reads a part of a tensor, or an axis as several indices";
}

std::optional<int> ForwardMatch::axis_along(const Access& access, int index) {
  const auto found = std::find(access.axes.begin(), access.axes.end(), Position(index));
  if (found == access.axes.end()) return std::nullopt;
  return static_cast<int>(found - access.axes.begin());
}

std::optional<int> ForwardMatch::axis_of_scores(size_t step, int index) const {
  const Access& input = step < path_.size() ? input_of(path_[step]) : op(made_.softmax).inputs[0];
  std::optional<int> axis = axis_along(input, index);
  for (size_t k = step; axis && k-- > 0;) {
    const Position& position = op(path_[k].op).outputs[0].axes[as_index(*axis)];
    axis = position.index() == kFixed ? std::nullopt : axis_along(input_of(path_[k]), position.index());
  }
  return axis;
}

std::optional<int> ForwardMatch::key_axis() const {
  const Operator& softmax = op(made_.softmax);
  std::optional<int> reduced;
  for (size_t index = 0; index < softmax.space.size(); ++index) {
    if (!softmax.reduced[index]) continue;
    if (reduced) return std::nullopt;
    reduced = static_cast<int>(index);
  }
  return reduced ? axis_of_scores(path_.size(), *reduced) : std::nullopt;
}

std::optional<int> ForwardMatch::causal_query_axis() const {
  for (size_t step = 0; step < path_.size(); ++step) {
    const Operator& own = op(path_[step].op);
    if (own.kind == OperatorKind::causal_mask && own.space.size() >= 2)
      return axis_of_scores(step, static_cast<int>(own.space.size()) - 2);
  }
  return std::nullopt;
}

int ForwardMatch::query_index(const std::vector<int>& only_queries) const {
  const Operator& scores = op(scores_);
  if (const std::optional<int> axis = causal_query_axis()) {
    const int index = scores.outputs[0].axes[as_index(*axis)].index();
    if (std::find(only_queries.begin(), only_queries.end(), index) != only_queries.end()) return index;
  }
  const auto extent = [&](int index) { return graph_.extent(scores.space[as_index(index)]); };
  return *std::max_element(only_queries.begin(), only_queries.end(),
                           [&](int one, int other) { return extent(one) <= extent(other); });
}

void ForwardMatch::add_batch(Role& role, DimId dim) {
  role = static_cast<Role>(made_.batch.size());
  made_.batch.push_back(dim);
}

const char* ForwardMatch::match_inner(const Access& keys, Roles& indices) {
  const Operator& scores = op(scores_);
  std::vector<size_t> inner;
  for (const Position& position : keys.axes) {
    const int index = position.index();
    if (index != kFixed && scores.reduced[as_index(index)]) inner.push_back(as_index(index));
  }
  if (inner.empty() || inner.size() > 2) return "its scores are contracted over no index, or over more than two";
  indices[inner.back()] = kInnerRole;
  made_.inner = scores.space[inner.back()];
  if (inner.size() == 1) return nullptr;
  indices[inner.front()] = kOuterInnerRole;
  made_.outer_inner = scores.space[inner.front()];
  return nullptr;
}

const char* ForwardMatch::match_scores() {
  const Operator& scores = op(scores_);
  const std::optional<int> axis = key_axis();
  if (!axis) return "its softmax reduces more than the keys";
  const int key = scores.outputs[0].axes[as_index(*axis)].index();
  const std::array<TensorId, 2> operands = {scores.inputs[0].tensor, scores.inputs[1].tensor};
  if (key == kFixed || operands[0] == operands[1]) return "its queries and keys are not two tensors";
  const size_t k = runs_along(scores.inputs[0], as_index(key)) ? 0 : 1;
  std::vector<int> only_queries;
  for (size_t index = 0; index < scores.space.size(); ++index) {
    if (!scores.reduced[index] && !runs_along(scores.inputs[k], index)) only_queries.push_back(static_cast<int>(index));
  }
  if (only_queries.empty()) return "an index of its scores is missing";
  const auto query = as_index(query_index(only_queries));
  made_.query = scores.space[query];
  Roles indices(scores.space.size(), kNoRole);
  for (size_t index = 0; index < scores.space.size(); ++index) {
    const DimId dim = scores.space[index];
    const bool in_k = runs_along(scores.inputs[k], index);
    const bool in_q = runs_along(scores.inputs[1 - k], index);
    Role& role = indices[index];
    if (scores.reduced[index]) continue;
    if (in_k && in_q) {
      add_batch(role, dim);
    } else if (in_k) {
      if (made_.key.valid()) return "its keys have more than one index";
      role = kKeyRole;
      made_.key = dim;
    } else if (index == query) {
      role = kQueryRole;
    } else {
      add_batch(role, dim);
      groups_.push_back(role);
    }
  }
  if (const char* const reason = match_inner(scores.inputs[k], indices)) return reason;
  if (!made_.key.valid()) return "an index of its scores is missing";
  const std::optional<Roles> of_k = roles_along(scores.inputs[k], indices);
  const std::optional<Roles> of_q = roles_along(scores.inputs[1 - k], indices);
  const std::optional<Roles> of_scores = roles_along(scores.outputs[0], indices);
  if (!of_k || !of_q || !of_scores || !note(made_.k, operands[k], *of_k, with_batch_of_keys(with_inner({kKeyRole}))) ||
      !note(made_.q, operands[1 - k], *of_q, with_batch(with_inner({kQueryRole}))))
    return "its queries and keys do not run along their indices once each, with their columns side by side";
  for (size_t input = 2; input < scores.inputs.size(); ++input) made_.scales.push_back(scores.inputs[input].tensor);
  inside_.insert(result_of(scores_));
  roles_[result_of(scores_)] = *of_scores;
  return nullptr;
}

const char* ForwardMatch::match_chain() {
  std::vector<OperatorId> chain;
  for (const PathStep& step : path_) chain.push_back(step.op);
  chain.push_back(made_.softmax);
  if (dropout_.valid()) chain.push_back(dropout_);
  for (const OperatorId id : chain) {
    const std::optional<Roles> indices = add_to_chain(id);
    if (!indices) return "its softmax, mask or dropout does not run along the scores' indices";
    if (id == made_.softmax && !is_reduced_exactly(op(id), *indices, {kKeyRole}))
      return "its softmax reduces more than the keys";
    if (op(id).kind == OperatorKind::causal_mask && !masks_keys_after_queries(*indices))
      return "its causal mask does not compare queries with keys";
  }
  const TensorId logits = op(made_.softmax).inputs[0].tensor;
  note(made_.logits, logits, roles_.at(logits), with_batch({kQueryRole, kKeyRole}));
  if (!dropout_.valid()) return nullptr;
  const TensorId mask = op(dropout_).outputs[1].tensor;
  note(made_.mask, mask, roles_.at(mask), with_batch({kQueryRole, kKeyRole}));
  return nullptr;
}

const char* ForwardMatch::match_output() {
  const Operator& output = op(output_);
  if (output.inputs.size() > 2) return "its output is scaled";
  const size_t v = output.inputs[0].tensor == dropped() ? 1 : 0;
  const TensorId values = output.inputs[v].tensor;
  if (values == dropped() || values == made_.q.tensor || values == made_.k.tensor)
    return "its queries, keys and values are not three tensors";
  std::optional<Roles> indices = indices_of(output_);
  if (!indices) return "its output does not run along the scores' indices";
  for (size_t index = 0; index < indices->size(); ++index) {
    if ((*indices)[index] != kNoRole) continue;
    if (made_.value.valid()) return "its values have more than one index";
    (*indices)[index] = kValueRole;
    made_.value = output.space[index];
  }
  if (!made_.value.valid()) return "its values have no separate index";
  if (!is_reduced_exactly(output, *indices, {kKeyRole})) return "its output is contracted over more than the keys";
  const std::optional<Roles> of_v = roles_along(output.inputs[v], *indices);
  const std::optional<Roles> of_o = roles_along(output.outputs[0], *indices);
  if (!of_v || !of_o || !note(made_.v, values, *of_v, with_batch_of_keys({kKeyRole, kValueRole})) ||
      !note(made_.o, result_of(output_), *of_o, with_batch({kQueryRole, kValueRole})))
    return "its values do not run along the batch indices of its keys";
  return nullptr;
}

}  // namespace millrace
