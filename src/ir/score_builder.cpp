#include "ir/score_builder.h"

#include <algorithm>

namespace millrace {

bool applies_to_scores(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::dropout:
    case OperatorKind::dropout_dx:
    case OperatorKind::join:
    case OperatorKind::index:
    case OperatorKind::gather:
    case OperatorKind::embed_diagonal: return false;
    default: return info_of(kind).operator_class == OperatorClass::elementwise;
  }
}

std::optional<size_t> ScoreBuilder::add(const Access& access, const Roles& indices) {
  const std::optional<Roles> axes = roles_of_axes(access, indices);
  if (!axes) return std::nullopt;
  const auto copy = copies_.find(access.tensor);
  const TensorId tensor = copy == copies_.end() ? access.tensor : copy->second;
  const auto known = nodes_.find({tensor, *axes});
  if (known != nodes_.end()) return known->second;
  const Made made = make(tensor, *axes);
  if (made) nodes_[{tensor, *axes}] = *made;
  return made;
}

ScoreBuilder::Made ScoreBuilder::make(TensorId tensor, const Roles& axes) {
  const TensorRole role = graph_.tensor(tensor).role;
  if (role == TensorRole::constant || role == TensorRole::scalar) {
    ScoreNode node;
    node.kind = ScoreNode::Kind::number;
    node.number = tensor;
    return add_node(std::move(node));
  }
  if (const auto given = given_.find(tensor); given != given_.end()) {
    if (given->second.first != axes) return std::nullopt;
    ScoreNode node;
    node.kind = given->second.second;
    return add_node(std::move(node));
  }
  const OperatorId producer = producers_[tensor.at()];
  if (required_.contains(tensor)) return apply(producer, axes);
  if (producer.valid() && !kept_.contains(tensor)) {
    const Operator& op = graph_.operators[producer.at()];
    const bool position = op.kind == OperatorKind::index && axes.size() == 1;
    if (position && (axes[0] == kQueryRole || axes[0] == kKeyRole)) return add_position(producer, axes[0]);
    if (saves_words(producer)) {
      if (const Made made = apply(producer, axes)) return made;
    }
  }
  return add_term(tensor, axes);
}

// Whether reading the operator's inputs, instead of its result, moves fewer words.
bool ScoreBuilder::saves_words(OperatorId producer) const {
  return fewest_words(producer, 0) < words_of(graph_, graph_.operators[producer.at()].outputs[0].tensor);
}

int64_t ScoreBuilder::fewest_words(OperatorId producer, int depth) const {
  constexpr int kDeepest = 12;  // a longer computation costs more than it saves
  const Operator& op = graph_.operators[producer.at()];
  const TensorId result = op.outputs[0].tensor;
  if (op.kind == OperatorKind::index) return 0;
  const int64_t stored = words_of(graph_, result);
  if (depth > kDeepest || kept_.contains(result) || !applies_to_scores(op.kind) || !has_plain_accesses(graph_, op))
    return stored;
  int64_t words = 0;
  for (const Access& input : op.inputs) {
    const OperatorId above = producers_[input.tensor.at()];
    words += above.valid() ? fewest_words(above, depth + 1) : words_of(graph_, input.tensor);
  }
  return std::min(words, stored);
}

ScoreBuilder::Made ScoreBuilder::apply(OperatorId producer, const Roles& axes) {
  const Operator& op = graph_.operators[producer.at()];
  if (!has_plain_accesses(graph_, op)) return std::nullopt;
  Roles indices(op.space.size(), kNoRole);
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const int index = op.outputs[0].axes[axis].index();
    if (index != kFixed) indices[as_index(index)] = axes[axis];
  }
  const bool masks = op.kind == OperatorKind::causal_mask || op.kind == OperatorKind::causal_mask_dx;
  if (masks && !masks_keys_after_queries(indices)) return std::nullopt;
  ScoreNode node;
  node.kind = ScoreNode::Kind::apply;
  node.op = op.kind;
  node.value = op.value;
  for (const Access& input : op.inputs) {
    const Made read = add(input, indices);
    if (!read) return std::nullopt;
    node.inputs.push_back(*read);
  }
  applied_.insert(producer);
  return add_node(std::move(node));
}

ScoreBuilder::Made ScoreBuilder::add_position(OperatorId producer, Role role) {
  positions_.insert(producer);
  ScoreNode node;
  node.kind = role == kQueryRole ? ScoreNode::Kind::query : ScoreNode::Kind::key;
  return add_node(std::move(node));
}

ScoreBuilder::Made ScoreBuilder::add_term(TensorId tensor, const Roles& axes) {
  AttentionTensor term{tensor, {std::vector<int>(batch_indices_, -1)}};
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const int at = static_cast<int>(axis);
    switch (axes[axis]) {
      case kNoRole: break;
      case kQueryRole: term.axes.query = at; break;
      case kKeyRole: term.axes.key = at; break;
      case kInnerRole:
      case kOuterInnerRole:
      case kValueRole: return std::nullopt;
      default: term.axes.batch[as_index(axes[axis])] = at;
    }
  }
  ScoreNode node;
  node.kind = ScoreNode::Kind::term;
  node.term = made_.terms.size();
  made_.terms.push_back(std::move(term));
  return add_node(std::move(node));
}

size_t ScoreBuilder::add_node(ScoreNode node) {
  made_.nodes.push_back(std::move(node));
  return made_.nodes.size() - 1;
}

}  // namespace millrace
