// One class over 500 lines: the steps of one match, which share what they have found.
#include "ir/attention.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ir/attention_roles.h"
#include "ir/score_builder.h"

namespace millrace {
namespace {

bool same_scales(const Operator& one, const Operator& other) {
  return std::equal(one.inputs.begin() + 2, one.inputs.end(), other.inputs.begin() + 2, other.inputs.end(),
                    [](const Access& l, const Access& r) { return l.tensor == r.tensor; });
}

// Matches the attention around one softmax.
class Matcher {
 public:
  // `kept`: tensors that operators outside need too, which attentions therefore read.
  Matcher(const Graph& graph, const std::vector<bool>& leaves, const std::vector<OperatorId>& producers,
          const std::vector<std::vector<OperatorId>>& readers, OperatorId softmax, const std::set<TensorId>& kept)
      : graph_(graph), leaves_(leaves), producers_(producers), readers_(readers), kept_(kept) {
    made_.softmax = softmax;
  }

  // Whether the softmax reads a contraction and a contraction reads it: only then is a reason for rejection useful.
  bool is_close() { return find_chain(); }

  // Why this is not an attention; nullptr if it is one: then pattern() has it.
  const char* run() {
    for (auto match :
         {&Matcher::check_accesses, &Matcher::match_scores, &Matcher::match_chain, &Matcher::match_output,
          &Matcher::check_forward, &Matcher::match_recomputed, &Matcher::match_output_gradients,
          &Matcher::match_softmax_gradients, &Matcher::match_chain_gradients, &Matcher::match_score_gradients,
          &Matcher::match_term_gradient, &Matcher::build_expressions, &Matcher::check_readers}) {
      if (const char* const reason = (this->*match)()) return reason;
    }
    for (std::vector<OperatorId>* const operators : {&made_.forward, &made_.backward})
      std::sort(operators->begin(), operators->end());
    return nullptr;
  }

  const AttentionPattern& pattern() const { return made_; }
  // Tensors that the attention would compute itself, but others read too: match again with these kept.
  const std::set<TensorId>& needed_outside() const { return needed_outside_; }

 private:
  static constexpr const char* kOtherGradients = "its gradients are not those of an attention";

  // An operator between the scores and the softmax, and which of its inputs is made of the scores.
  struct PathStep {
    OperatorId op;
    size_t input;
  };

  template <class List, class Element>
  static bool is_in(const List& list, const Element& element) {
    return std::find(list.begin(), list.end(), element) != list.end();
  }
  bool is_own(OperatorId id) const { return is_in(made_.forward, id) || is_in(made_.backward, id); }

  const Operator& op(OperatorId id) const { return graph_.operators[id.at()]; }
  const Access& input_of(const PathStep& step) const { return op(step.op).inputs[step.input]; }
  TensorId result_of(OperatorId id) const { return op(id).outputs[0].tensor; }

  // What row_statistics adds, not a program's own log_sum_exp.
  bool is_statistic(OperatorId id) const {
    return op(id).kind == OperatorKind::log_sum_exp && readers_[result_of(id).at()].empty() &&
           !leaves_[result_of(id).at()];
  }

  std::vector<OperatorId> readers_of(TensorId tensor, Pass pass) const {
    std::vector<OperatorId> found;
    for (const OperatorId reader : readers_[tensor.at()]) {
      if (op(reader).pass == pass && !is_statistic(reader)) found.push_back(reader);
    }
    return found;
  }

  // The one operator of a kind that reads a tensor in a pass; invalid if there is none, or several.
  OperatorId only(OperatorKind kind, TensorId tensor, Pass pass) const {
    OperatorId found;
    for (const OperatorId reader : readers_of(tensor, pass)) {
      if (op(reader).kind != kind) continue;
      if (found.valid()) return {};
      found = reader;
    }
    return found;
  }

  // --- Forward ---

  bool find_chain() {
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

  // The contraction that this tensor is made of by elementwise operators, which are added to the path.
  OperatorId find_scores(TensorId tensor) {
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

  static bool runs_along_all(const Operator& own, const Access& access) {
    for (size_t index = 0; index < own.space.size(); ++index) {
      if (!runs_along(access, index)) return false;
    }
    return true;
  }

  const char* check_accesses() {
    const bool plain = std::all_of(made_.forward.begin(), made_.forward.end(),
                                   [&](OperatorId id) { return has_plain_accesses(graph_, op(id)); });
    return plain ? nullptr : "it reads a part of a tensor, or an axis as several indices";
  }

  // Records the roles of a tensor's axes; false if they are not exactly `wanted`.
  bool note(AttentionTensor& into, TensorId tensor, const Roles& axes, const Roles& wanted) {
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
        default: into.axes.batch[static_cast<size_t>(axes[axis])] = at;
      }
    }
    roles_[tensor] = axes;
    return into.axes.outer_column < 0 || into.axes.outer_column + 1 == into.axes.column;
  }

  // `others` and the inner indices.
  Roles with_inner(Roles others) const {
    others.push_back(kInnerRole);
    if (made_.outer_inner.valid()) others.push_back(kOuterInnerRole);
    return others;
  }
  // `others` and the batch indices.
  Roles with_batch(Roles others) const {
    for (size_t k = 0; k < made_.batch.size(); ++k) others.push_back(static_cast<Role>(k));
    return others;
  }
  // `others` and the batch indices that keys have too.
  Roles with_batch_of_keys(Roles others) const {
    for (size_t k = 0; k < made_.batch.size(); ++k) {
      if (std::find(groups_.begin(), groups_.end(), static_cast<Role>(k)) == groups_.end())
        others.push_back(static_cast<Role>(k));
    }
    return others;
  }
  // The indices that the gradients of keys and values are summed over.
  Roles queries_and_groups() const {
    Roles roles = groups_;
    roles.push_back(kQueryRole);
    return roles;
  }

  // The axis of a tensor that runs along an index.
  static std::optional<int> axis_along(const Access& access, int index) {
    const auto found = std::find(access.axes.begin(), access.axes.end(), Position(index));
    if (found == access.axes.end()) return std::nullopt;
    return static_cast<int>(found - access.axes.begin());
  }

  // The axis of the scores that an index of a step of the path runs along; of the softmax, which is after the last
  // step.
  std::optional<int> axis_of_scores(size_t step, int index) const {
    const Access& input = step < path_.size() ? input_of(path_[step]) : op(made_.softmax).inputs[0];
    std::optional<int> axis = axis_along(input, index);
    for (size_t k = step; axis && k-- > 0;) {
      const Position& position = op(path_[k].op).outputs[0].axes[as_index(*axis)];
      axis = position.index() == kFixed ? std::nullopt : axis_along(input_of(path_[k]), position.index());
    }
    return axis;
  }

  // The axis of the scores along which the softmax runs.
  std::optional<int> key_axis() const {
    const Operator& softmax = op(made_.softmax);
    std::optional<int> reduced;
    for (size_t index = 0; index < softmax.space.size(); ++index) {
      if (!softmax.reduced[index]) continue;
      if (reduced) return std::nullopt;
      reduced = static_cast<int>(index);
    }
    return reduced ? axis_of_scores(path_.size(), *reduced) : std::nullopt;
  }

  // The axis of the scores whose queries a causal mask compares with the keys.
  std::optional<int> causal_query_axis() const {
    for (size_t step = 0; step < path_.size(); ++step) {
      const Operator& own = op(path_[step].op);
      if (own.kind == OperatorKind::causal_mask && own.space.size() >= 2)
        return axis_of_scores(step, static_cast<int>(own.space.size()) - 2);
    }
    return std::nullopt;
  }

  // Of several indices that only the queries have, one counts the rows of the scores: the one that a causal mask
  // compares, else the longest. The others are groups of heads that share their keys.
  int query_index(const std::vector<int>& only_queries) const {
    const Operator& scores = op(scores_);
    if (const std::optional<int> axis = causal_query_axis()) {
      const int index = scores.outputs[0].axes[as_index(*axis)].index();
      if (std::find(only_queries.begin(), only_queries.end(), index) != only_queries.end()) return index;
    }
    const auto extent = [&](int index) { return graph_.extent(scores.space[as_index(index)]); };
    return *std::max_element(only_queries.begin(), only_queries.end(),
                             [&](int one, int other) { return extent(one) <= extent(other); });
  }

  void add_batch(Role& role, DimId dim) {
    role = static_cast<Role>(made_.batch.size());
    made_.batch.push_back(dim);
  }

  // The indices that the scores are contracted over, in the order of the keys' axes.
  const char* match_inner(const Access& keys, Roles& indices) {
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

  const char* match_scores() {
    const Operator& scores = op(scores_);
    const std::optional<int> axis = key_axis();
    if (!axis) return "its softmax reduces more than the keys";
    const int key = scores.outputs[0].axes[as_index(*axis)].index();
    const std::array<TensorId, 2> operands = {scores.inputs[0].tensor, scores.inputs[1].tensor};
    if (key == kFixed || operands[0] == operands[1]) return "its queries and keys are not two tensors";
    const size_t k = runs_along(scores.inputs[0], as_index(key)) ? 0 : 1;
    std::vector<int> only_queries;
    for (size_t index = 0; index < scores.space.size(); ++index) {
      if (!scores.reduced[index] && !runs_along(scores.inputs[k], index))
        only_queries.push_back(static_cast<int>(index));
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
    if (!of_k || !of_q || !of_scores ||
        !note(made_.k, operands[k], *of_k, with_batch_of_keys(with_inner({kKeyRole}))) ||
        !note(made_.q, operands[1 - k], *of_q, with_batch(with_inner({kQueryRole}))))
      return "its queries and keys do not run along their indices once each, with their columns side by side";
    for (size_t input = 2; input < scores.inputs.size(); ++input) made_.scales.push_back(scores.inputs[input].tensor);
    inside_.insert(result_of(scores_));
    roles_[result_of(scores_)] = *of_scores;
    return nullptr;
  }

  // The roles of an operator's indices, from the roles of the tensors that it accesses.
  std::optional<Roles> indices_of(OperatorId id) {
    Roles indices(op(id).space.size(), kNoRole);
    for (const std::vector<Access>* accesses : {&op(id).inputs, &op(id).outputs}) {
      for (const Access& access : *accesses) {
        const auto known = roles_.find(access.tensor);
        if (known != roles_.end() && !take_roles(access, known->second, indices)) return std::nullopt;
      }
    }
    return indices;
  }

  // Records the outputs of a map or normalization over the indices of the scores; nothing if its indices differ.
  std::optional<Roles> add_to_chain(OperatorId id) {
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

  const char* match_chain() {
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

  // The weights as the output contraction reads them.
  TensorId dropped() const { return result_of(dropout_.valid() ? dropout_ : made_.softmax); }

  const char* match_output() {
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

  // --- Backward ---

  // Whether a tensor that backward reads is a forward tensor or a recomputed copy of it.
  bool is_copy_of(TensorId tensor, TensorId forward) const {
    const auto copy = recomputed_.find(tensor);
    return (copy != recomputed_.end() ? copy->second : tensor) == forward;
  }

  // Whether a backward operator recomputes a forward one.
  bool repeats(const Operator& copy, const Operator& original) const {
    if (copy.kind != original.kind || copy.space != original.space || copy.reduced != original.reduced) return false;
    if (copy.value != original.value || copy.inputs.size() != original.inputs.size()) return false;
    for (size_t k = 0; k < copy.inputs.size(); ++k) {
      if (!is_copy_of(copy.inputs[k].tensor, original.inputs[k].tensor) ||
          copy.inputs[k].axes != original.inputs[k].axes)
        return false;
    }
    return copy.outputs[0].axes == original.outputs[0].axes;
  }

  const char* match_recomputed() {
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

  // The other of a contraction's two operands.
  TensorId other_operand(OperatorId contraction, TensorId one) const {
    const std::vector<Access>& inputs = op(contraction).inputs;
    return inputs[inputs[0].tensor == one ? 1 : 0].tensor;
  }

  // The contraction of these two operands over exactly these indices; invalid if there is none.
  OperatorId contraction_of(TensorId one, TensorId other, const Roles& over) {
    for (const OperatorId id : readers_of(one, Pass::backward)) {
      if (op(id).kind != OperatorKind::contraction || one == other || other_operand(id, one) != other) continue;
      const std::optional<Roles> indices = indices_of(id);
      if (indices && is_reduced_exactly(op(id), *indices, over)) return id;
    }
    return {};
  }

  // Records a contraction's result as the gradient of an operand.
  bool take_gradient(OperatorId contraction, AttentionTensor& into, const Roles& wanted) {
    const std::optional<Roles> indices = indices_of(contraction);
    const std::optional<Roles> axes = indices ? roles_along(op(contraction).outputs[0], *indices) : std::nullopt;
    if (!axes || !note(into, result_of(contraction), *axes, wanted)) return false;
    made_.backward.push_back(contraction);
    return true;
  }

  // The gradients of the values and of the weights.
  const char* match_output_gradients() {
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

  // The forward tensor and its recomputed copies.
  std::vector<TensorId> copies_of(TensorId forward) const {
    std::vector<TensorId> found = {forward};
    for (const auto& [copy, original] : recomputed_) {
      if (original == forward) found.push_back(copy);
    }
    return found;
  }

  // The gradients of the dropout and the softmax, in this order.
  const char* match_softmax_gradients() {
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

  // What elementwise operators make of the logits' gradient.
  const char* match_chain_gradients() {
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

  // The gradients of the queries and the keys.
  const char* match_score_gradients() {
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

  // The gradient of a term: a sum over batch indices.
  const char* match_term_gradient() {
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

  // --- The expression of the scores ---

  const char* build_expressions() {
    constexpr const char* kOtherTerm = "a term of its scores does not run along their indices";
    ScoreBuilder forward = builder();
    ScoreBuilder backward = builder();
    const auto read = [&](ScoreBuilder& by, const Access& access, OperatorId reader) {
      const std::optional<Roles> indices = indices_of(reader);
      return indices ? by.add(access, *indices) : std::nullopt;
    };
    for (ScoreBuilder* const by : {&forward, &backward}) {
      const std::optional<size_t> logit = read(*by, op(made_.softmax).inputs[0], made_.softmax);
      if (!logit) return kOtherTerm;
      by->expression().logit = *logit;
    }
    const OperatorId d_q = producers_[made_.d_q.tensor.at()];
    backward.expression().d_score = read(backward, op(d_q).inputs[op(d_q).inputs[0].tensor == d_scores_ ? 0 : 1], d_q);
    if (!backward.expression().d_score) return kOtherTerm;
    if (d_term_.valid()) {
      backward.expression().d_term = read(backward, op(d_term_).inputs[0], d_term_);
      if (!backward.expression().d_term) return kOtherTerm;
    }
    std::set<OperatorId> applied = forward.applied();
    std::set<OperatorId> positions = forward.positions();
    applied.insert(backward.applied().begin(), backward.applied().end());
    positions.insert(backward.positions().begin(), backward.positions().end());
    take_operators(applied, positions);
    take_expressions(forward.expression(), backward.expression());
    return nullptr;
  }

  ScoreBuilder builder() const {
    ScoreBuilder made(graph_, producers_, made_.batch.size(), kept_);
    made.give(result_of(scores_), roles_.at(result_of(scores_)), ScoreNode::Kind::score);
    made.give(d_path_.front(), roles_.at(d_path_.front()), ScoreNode::Kind::gradient);
    for (const PathStep& step : path_) made.require(result_of(step.op));
    for (const TensorId gradient : d_path_) made.require(gradient);
    for (const auto& [copy, original] : recomputed_) made.add_copy(copy, original);
    return made;
  }

  // Adds the operators that compute terms and positions, unless others read their results.
  void take_operators(const std::set<OperatorId>& applied, const std::set<OperatorId>& positions) {
    std::set<OperatorId> taken;
    for (const OperatorId id : applied) {
      if (!is_own(id)) taken.insert(id);
    }
    for (const OperatorId id : taken) take_operator(id);
    for (const OperatorId id : taken) {
      if (is_read_outside(id)) needed_outside_.insert(result_of(id));
    }
    for (const OperatorId id : positions) {
      if (is_read_outside(id)) {
        made_.repeated.push_back(id);
      } else {
        take_operator(id);
      }
    }
  }
  bool is_read_outside(OperatorId id) const {
    const std::vector<OperatorId>& readers = readers_[result_of(id).at()];
    return leaves_[result_of(id).at()] ||
           std::any_of(readers.begin(), readers.end(), [&](OperatorId reader) { return !is_own(reader); });
  }
  void take_operator(OperatorId id) {
    (op(id).pass == Pass::forward ? made_.forward : made_.backward).push_back(id);
    inside_.insert(result_of(id));
  }

  void take_expressions(ScoreExpression& forward, ScoreExpression& backward) {
    const int64_t queries = graph_.extent(made_.query);
    const int64_t keys = graph_.extent(made_.key);
    made_.window = take_window(graph_, queries, keys, forward);
    take_window(graph_, queries, keys, backward);
    made_.score = std::move(forward);
    made_.gradients = std::move(backward);
  }

  // The intermediate tensors are never in memory, so no other operator may read them, nor the mask.
  const char* check_readers() {
    if (made_.mask.tensor.valid()) inside_.insert(made_.mask.tensor);
    std::vector<OperatorId> own = made_.forward;
    own.insert(own.end(), made_.backward.begin(), made_.backward.end());
    return read_by_others(own, {Pass::forward, Pass::backward});
  }
  // Runs before the gradients are matched: with other readers, they would differ from an attention's.
  const char* check_forward() { return read_by_others(made_.forward, {Pass::forward}); }

  const char* read_by_others(const std::vector<OperatorId>& own, const std::set<Pass>& passes) const {
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

  const Graph& graph_;
  const std::vector<bool>& leaves_;
  const std::vector<OperatorId>& producers_;
  const std::vector<std::vector<OperatorId>>& readers_;
  const std::set<TensorId>& kept_;
  std::set<TensorId> needed_outside_;
  OperatorId scores_;
  std::vector<PathStep> path_;  // from the scores to the softmax
  OperatorId dropout_;          // invalid if there is none
  OperatorId output_;
  OperatorId d_chain_;                       // the last operator of the softmax's gradients that was matched
  std::vector<TensorId> d_path_;             // the logits' gradient, and what elementwise operators make of it
  TensorId d_scores_;                        // one of them
  OperatorId d_term_;                        // the sum that is the gradient of a term; invalid if there is none
  Roles groups_;                             // batch indices that count heads which share their keys
  std::map<TensorId, Roles> roles_;          // of the axes of each matched tensor
  std::set<TensorId> inside_;                // intermediate tensors: in memory only if operators run separately
  std::map<TensorId, TensorId> recomputed_;  // from a recomputed copy in backward to the forward tensor
  AttentionPattern made_;
};

void find_attention(const Graph& graph, const std::vector<bool>& leaves, const std::vector<OperatorId>& producers,
                    const std::vector<std::vector<OperatorId>>& readers, OperatorId softmax, FoundAttentions& found) {
  std::set<TensorId> kept;
  while (true) {
    Matcher matcher(graph, leaves, producers, readers, softmax, kept);
    if (!matcher.is_close()) return;
    const char* const reason = matcher.run();
    if (!matcher.needed_outside().empty()) {
      kept.insert(matcher.needed_outside().begin(), matcher.needed_outside().end());
      continue;
    }
    if (reason != nullptr) {
      found.rejected.push_back({softmax, reason});
    } else {
      found.attentions.push_back(matcher.pattern());
    }
    return;
  }
}

}  // namespace

FoundAttentions find_attentions(const Graph& graph, const std::vector<bool>& leaves) {
  FoundAttentions found;
  const std::vector<OperatorId> producers = producers_of(graph);
  const std::vector<std::vector<OperatorId>> readers = readers_of(graph);
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    if (graph.operators[k].kind != OperatorKind::softmax || graph.operators[k].pass != Pass::forward) continue;
    find_attention(graph, leaves, producers, readers, OperatorId(k), found);
  }
  return found;
}

}  // namespace millrace
