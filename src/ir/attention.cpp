#include "ir/attention.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace millrace {
namespace {

// The role of an index in an attention: a batch index (by its number), or one of the other four.
using Role = int;
constexpr Role kQuery = -1;
constexpr Role kKey = -2;
constexpr Role kInner = -3;
constexpr Role kValue = -4;
constexpr Role kNone = -5;

using Roles = std::vector<Role>;  // one per axis of a tensor, or one per index of a space

bool is_reduced_exactly(const Operator& op, const Roles& indices, const Roles& wanted) {
  for (size_t index = 0; index < op.space.size(); ++index) {
    const bool is_wanted = std::find(wanted.begin(), wanted.end(), indices[index]) != wanted.end();
    if (op.reduced[index] != is_wanted) return false;
  }
  return true;
}

// The roles of an access's axes; nothing if one runs along no index, or two run along one index.
std::optional<Roles> roles_along(const Access& access, const Roles& indices) {
  Roles roles;
  for (const Position& axis : access.axes) {
    if (axis.index() == kFixed) return std::nullopt;
    const Role role = indices[as_index(axis.index())];
    if (std::find(roles.begin(), roles.end(), role) != roles.end()) return std::nullopt;
    roles.push_back(role);
  }
  return roles;
}

// Copies the roles of a tensor's axes to the indices that they run along; false if they contradict each other.
bool take_roles(const Access& access, const Roles& axes, Roles& indices) {
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const int index = access.axes[axis].index();
    if (index == kFixed) return false;
    Role& role = indices[as_index(index)];
    if (role != kNone && role != axes[axis]) return false;
    if (role == kNone && std::find(indices.begin(), indices.end(), axes[axis]) != indices.end()) return false;
    role = axes[axis];
  }
  return true;
}

bool have_same_roles(Roles roles, Roles wanted) {
  std::sort(roles.begin(), roles.end());
  std::sort(wanted.begin(), wanted.end());
  return roles == wanted;
}

bool same_scales(const Operator& one, const Operator& other) {
  return std::equal(one.inputs.begin() + 2, one.inputs.end(), other.inputs.begin() + 2, other.inputs.end(),
                    [](const Access& l, const Access& r) { return l.tensor == r.tensor; });
}

// Matches the attention around one softmax.
class Matcher {
 public:
  Matcher(const Graph& graph, const std::vector<bool>& leaves, const std::vector<OperatorId>& producers,
          const std::vector<std::vector<OperatorId>>& readers, OperatorId softmax)
      : graph_(graph), leaves_(leaves), producers_(producers), readers_(readers) {
    made_.softmax = softmax;
  }

  // Whether the softmax reads a contraction and a contraction reads it: only then is a reason for rejection useful.
  bool is_close() { return find_chain(); }

  // Why this is not an attention; nullptr if it is one: then pattern() has it.
  const char* run() {
    for (auto match : {&Matcher::check_accesses, &Matcher::match_scores, &Matcher::match_chain, &Matcher::match_output,
                       &Matcher::check_forward, &Matcher::match_recomputed, &Matcher::match_output_gradients,
                       &Matcher::match_chain_gradients, &Matcher::match_score_gradients, &Matcher::check_readers}) {
      if (const char* const reason = (this->*match)()) return reason;
    }
    std::sort(made_.backward.begin(), made_.backward.end());
    return nullptr;
  }

  const AttentionPattern& pattern() const { return made_; }

 private:
  static constexpr const char* kOtherGradients = "its gradients are not those of an attention";

  const Operator& op(OperatorId id) const { return graph_.operators[id.at()]; }
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
    OperatorId above = producers_[op(made_.softmax).inputs[0].tensor.at()];
    if (above.valid() && op(above).kind == OperatorKind::causal_mask) {
      causal_ = above;
      above = producers_[op(above).inputs[0].tensor.at()];
    }
    if (!above.valid() || op(above).kind != OperatorKind::contraction) return false;
    scores_ = above;
    TensorId weights = result_of(made_.softmax);
    dropout_ = only(OperatorKind::dropout, weights, Pass::forward);
    if (dropout_.valid()) weights = result_of(dropout_);
    output_ = only(OperatorKind::contraction, weights, Pass::forward);
    if (!output_.valid()) return false;
    made_.forward = {scores_};
    for (const OperatorId id : {causal_, made_.softmax, dropout_, output_}) {
      if (id.valid()) made_.forward.push_back(id);
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
        case kQuery: into.axes.query = at; break;
        case kKey: into.axes.key = at; break;
        case kInner:
        case kValue: into.axes.column = at; break;
        default: into.axes.batch[static_cast<size_t>(axes[axis])] = at;
      }
    }
    roles_[tensor] = axes;
    return true;
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
    roles.push_back(kQuery);
    return roles;
  }

  // The axis of the scores along which the softmax runs, traced through the causal mask.
  std::optional<int> key_axis() const {
    const Operator& softmax = op(made_.softmax);
    std::optional<int> reduced;
    for (size_t index = 0; index < softmax.space.size(); ++index) {
      if (!softmax.reduced[index]) continue;
      if (reduced) return std::nullopt;
      reduced = static_cast<int>(index);
    }
    const auto axis_along = [](const Access& access, int index) -> std::optional<int> {
      const auto found = std::find(access.axes.begin(), access.axes.end(), Position(index));
      if (found == access.axes.end()) return std::nullopt;
      return static_cast<int>(found - access.axes.begin());
    };
    std::optional<int> axis = reduced ? axis_along(softmax.inputs[0], *reduced) : std::nullopt;
    if (axis && causal_.valid()) axis = axis_along(op(causal_).inputs[0], *axis);  // its output runs along its space
    return axis;
  }

  // The axis of the scores whose queries a causal mask compares with the keys.
  std::optional<int> causal_query_axis() const {
    if (!causal_.valid() || op(causal_).space.size() < 2) return std::nullopt;
    const Access& input = op(causal_).inputs[0];
    const auto found =
        std::find(input.axes.begin(), input.axes.end(), Position(static_cast<int>(op(causal_).space.size()) - 2));
    if (found == input.axes.end()) return std::nullopt;
    return static_cast<int>(found - input.axes.begin());
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
    Roles indices(scores.space.size(), kNone);
    for (size_t index = 0; index < scores.space.size(); ++index) {
      const DimId dim = scores.space[index];
      const bool in_k = runs_along(scores.inputs[k], index);
      const bool in_q = runs_along(scores.inputs[1 - k], index);
      Role& role = indices[index];
      if (scores.reduced[index]) {
        if (made_.inner.valid()) return "its scores are contracted over more than one index";
        role = kInner;
        made_.inner = dim;
      } else if (in_k && in_q) {
        add_batch(role, dim);
      } else if (in_k) {
        if (made_.key.valid()) return "its keys have more than one index";
        role = kKey;
        made_.key = dim;
      } else if (index == query) {
        role = kQuery;
      } else {
        add_batch(role, dim);
        groups_.push_back(role);
      }
    }
    if (!made_.key.valid() || !made_.inner.valid()) return "an index of its scores is missing";
    const std::optional<Roles> of_k = roles_along(scores.inputs[k], indices);
    const std::optional<Roles> of_q = roles_along(scores.inputs[1 - k], indices);
    const std::optional<Roles> of_scores = roles_along(scores.outputs[0], indices);
    if (!of_k || !of_q || !of_scores || !note(made_.k, operands[k], *of_k, with_batch_of_keys({kKey, kInner})) ||
        !note(made_.q, operands[1 - k], *of_q, with_batch({kQuery, kInner})))
      return "its queries and keys do not run along their indices once each";
    for (size_t input = 2; input < scores.inputs.size(); ++input) made_.scales.push_back(scores.inputs[input].tensor);
    inside_.insert(result_of(scores_));
    roles_[result_of(scores_)] = *of_scores;
    return nullptr;
  }

  // The roles of an operator's indices, from the roles of the tensors that it accesses.
  std::optional<Roles> indices_of(OperatorId id) {
    Roles indices(op(id).space.size(), kNone);
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
    if (!indices || !have_same_roles(*indices, with_batch({kQuery, kKey}))) return std::nullopt;
    for (const Access& output : op(id).outputs) {
      const std::optional<Roles> roles = roles_along(output, *indices);
      if (!roles || roles->size() != indices->size()) return std::nullopt;
      roles_[output.tensor] = *roles;
    }
    inside_.insert(result_of(id));
    return indices;
  }

  // A causal mask compares the last two indices of its space.
  static bool masks_keys_after_queries(const Roles& indices) {
    return indices.size() >= 2 && indices[indices.size() - 1] == kKey && indices[indices.size() - 2] == kQuery;
  }

  const char* match_chain() {
    for (const OperatorId id : {causal_, made_.softmax, dropout_}) {
      if (!id.valid()) continue;
      const std::optional<Roles> indices = add_to_chain(id);
      if (!indices) return "its softmax, mask or dropout does not run along the scores' indices";
      if (id == made_.softmax && !is_reduced_exactly(op(id), *indices, {kKey}))
        return "its softmax reduces more than the keys";
      if (id == causal_ && !masks_keys_after_queries(*indices))
        return "its causal mask does not compare queries with keys";
    }
    made_.causal = causal_.valid();
    const TensorId logits = op(made_.softmax).inputs[0].tensor;
    note(made_.logits, logits, roles_.at(logits), with_batch({kQuery, kKey}));
    if (!dropout_.valid()) return nullptr;
    const TensorId mask = op(dropout_).outputs[1].tensor;
    note(made_.mask, mask, roles_.at(mask), with_batch({kQuery, kKey}));
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
      if ((*indices)[index] != kNone) continue;
      if (made_.value.valid()) return "its values have more than one index";
      (*indices)[index] = kValue;
      made_.value = output.space[index];
    }
    if (!made_.value.valid()) return "its values have no separate index";
    if (!is_reduced_exactly(output, *indices, {kKey})) return "its output is contracted over more than the keys";
    const std::optional<Roles> of_v = roles_along(output.inputs[v], *indices);
    const std::optional<Roles> of_o = roles_along(output.outputs[0], *indices);
    if (!of_v || !of_o || !note(made_.v, values, *of_v, with_batch_of_keys({kKey, kValue})) ||
        !note(made_.o, result_of(output_), *of_o, with_batch({kQuery, kValue})))
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
    return is_copy_of(copy.inputs[0].tensor, original.inputs[0].tensor) &&
           copy.inputs[0].axes == original.inputs[0].axes && copy.outputs[0].axes == original.outputs[0].axes;
  }

  const char* match_recomputed() {
    for (size_t k = 0; k < graph_.operators.size(); ++k) {
      const OperatorId id(k);
      if (op(id).pass == Pass::forward) continue;
      for (const OperatorId original : {causal_, made_.softmax}) {
        if (!original.valid() || !repeats(op(id), op(original))) continue;
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
    for (Role& role : *indices) role = role == kNone ? kValue : role;
    const Operator& d_values_op = op(d_values);
    const Access& gradient = d_values_op.inputs[d_values_op.inputs[0].tensor == d_o ? 0 : 1];
    const std::optional<Roles> axes = roles_along(gradient, *indices);
    if (!axes || !is_reduced_exactly(d_values_op, *indices, queries_and_groups()) ||
        !note(made_.d_o, d_o, *axes, with_batch({kQuery, kValue})) ||
        !take_gradient(d_values, made_.d_v, with_batch_of_keys({kKey, kValue})))
      return kOtherGradients;
    d_chain_ = contraction_of(d_o, made_.v.tensor, {kValue});
    if (!d_chain_.valid()) return "not all of its gradients are needed";
    AttentionTensor d_weights;
    if (op(d_chain_).inputs.size() > 2 || !take_gradient(d_chain_, d_weights, with_batch({kQuery, kKey})))
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

  // The gradients of the dropout, the softmax and the mask, in this order.
  const char* match_chain_gradients() {
    const auto match = [&](OperatorKind kind, OperatorId original, size_t gradient) {
      if (!original.valid()) return true;
      const OperatorId next = only(kind, result_of(d_chain_), Pass::backward);
      if (!next.valid() || op(next).inputs[gradient].tensor != result_of(d_chain_)) return false;
      const std::optional<Roles> indices = add_to_chain(next);
      if (!indices) return false;
      const Operator& next_op = op(next);
      if (kind == OperatorKind::dropout_dx && next_op.inputs[0].tensor != made_.mask.tensor) return false;
      if (kind == OperatorKind::softmax_dx && !(is_copy_of(next_op.inputs[0].tensor, result_of(made_.softmax)) &&
                                                is_reduced_exactly(next_op, *indices, {kKey})))
        return false;
      if (kind == OperatorKind::causal_mask_dx && !masks_keys_after_queries(*indices)) return false;
      made_.backward.push_back(next);
      d_chain_ = next;
      return true;
    };
    const bool matched = match(OperatorKind::dropout_dx, dropout_, 1) &&
                         match(OperatorKind::softmax_dx, made_.softmax, 1) &&
                         match(OperatorKind::causal_mask_dx, causal_, 0);
    return matched ? nullptr : kOtherGradients;
  }

  // The gradients of the queries and the keys.
  const char* match_score_gradients() {
    const TensorId d_scores = result_of(d_chain_);
    const OperatorId d_q = contraction_of(d_scores, made_.k.tensor, {kKey});
    const OperatorId d_k = contraction_of(d_scores, made_.q.tensor, queries_and_groups());
    if (!d_q.valid() || !d_k.valid()) return "not all of its gradients are needed";
    if (!same_scales(op(d_q), op(scores_)) || !same_scales(op(d_k), op(scores_))) return kOtherGradients;
    const bool taken = take_gradient(d_q, made_.d_q, with_batch({kQuery, kInner})) &&
                       take_gradient(d_k, made_.d_k, with_batch_of_keys({kKey, kInner}));
    return taken ? nullptr : kOtherGradients;
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
        const bool is_own = std::find(own.begin(), own.end(), reader) != own.end();
        if (!is_own && !statistic && passes.contains(op(reader).pass))
          return "another operator reads one of its intermediate tensors";
      }
    }
    return nullptr;
  }

  const Graph& graph_;
  const std::vector<bool>& leaves_;
  const std::vector<OperatorId>& producers_;
  const std::vector<std::vector<OperatorId>>& readers_;
  OperatorId scores_;
  OperatorId causal_;   // invalid if there is none
  OperatorId dropout_;  // invalid if there is none
  OperatorId output_;
  OperatorId d_chain_;                       // the last operator of the chain's gradients that was matched
  Roles groups_;                             // batch indices that count heads which share their keys
  std::map<TensorId, Roles> roles_;          // of the axes of each matched tensor
  std::set<TensorId> inside_;                // intermediate tensors: in memory only if operators run separately
  std::map<TensorId, TensorId> recomputed_;  // from a recomputed copy in backward to the forward tensor
  AttentionPattern made_;
};

}  // namespace

FoundAttentions find_attentions(const Graph& graph, const std::vector<bool>& leaves) {
  FoundAttentions found;
  const std::vector<OperatorId> producers = producers_of(graph);
  const std::vector<std::vector<OperatorId>> readers = readers_of(graph);
  for (size_t k = 0; k < graph.operators.size(); ++k) {
    if (graph.operators[k].kind != OperatorKind::softmax || graph.operators[k].pass != Pass::forward) continue;
    Matcher matcher(graph, leaves, producers, readers, OperatorId(k));
    if (!matcher.is_close()) continue;
    if (const char* const reason = matcher.run()) {
      found.rejected.push_back({OperatorId(k), reason});
    } else {
      found.attentions.push_back(matcher.pattern());
    }
  }
  return found;
}

}  // namespace millrace
