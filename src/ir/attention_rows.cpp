#include "ir/attention_rows.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/row_builder.h"

namespace millrace {
namespace {

// Whether its axes are the rows, the batch indices and the columns of an operand like this one.
bool is_like(const Graph& graph, const AttentionTensor& tensor, const AttentionTensor& operand) {
  const AttentionAxes& axes = tensor.axes;
  const AttentionAxes& like = operand.axes;
  for (size_t k = 0; k < like.batch.size(); ++k) {
    if ((axes.batch[k] < 0) != (like.batch[k] < 0)) return false;
  }
  return (axes.query < 0) == (like.query < 0) && (axes.key < 0) == (like.key < 0) && axes.column >= 0 &&
         graph.tensor(tensor.tensor).dtype == graph.tensor(operand.tensor).dtype;
}

// The tensor with its other axes as columns: one, or two that are next to each other.
AttentionTensor with_columns(const Graph& graph, AttentionTensor tensor) {
  const AttentionAxes& axes = tensor.axes;
  std::vector<int> others;
  for (int axis = 0; axis < std::ssize(graph.tensor(tensor.tensor).dims); ++axis) {
    const bool known = axis == axes.query || axis == axes.key ||
                       std::find(axes.batch.begin(), axes.batch.end(), axis) != axes.batch.end();
    if (!known) others.push_back(axis);
  }
  if (others.size() == 1) tensor.axes.column = others[0];
  if (others.size() == 2 && others[0] + 1 == others[1]) {
    tensor.axes.outer_column = others[0];
    tensor.axes.column = others[1];
  }
  return tensor;
}

class RowFinder {
 public:
  RowFinder(const Graph& graph, const std::vector<bool>& leaves, const AttentionPattern& attention)
      : graph_(graph),
        leaves_(leaves),
        attention_(attention),
        producers_(producers_of(graph)),
        readers_(readers_of(graph)),
        own_(attention.forward.begin(), attention.forward.end()) {
    own_.insert(attention.backward.begin(), attention.backward.end());
  }

  std::optional<AbsorbedRows> run() {
    AbsorbedRows made;
    made.q = from_producers(attention_.q, attention_.k);
    made.k = from_producers(attention_.k, attention_.q);
    made.forward = {absorbed_.begin(), absorbed_.end()};
    absorbed_.clear();
    if (attention_.d_q.tensor.valid()) made.d_q = to_readers(attention_.d_q);
    if (attention_.d_k.tensor.valid()) made.d_k = to_readers(attention_.d_k);
    made.backward = {absorbed_.begin(), absorbed_.end()};
    if (made.forward.empty() && made.backward.empty()) return std::nullopt;
    return made;
  }

 private:
  const Operator& op(OperatorId id) const { return graph_.operators[id.at()]; }
  TensorId result_of(OperatorId id) const { return op(id).outputs[0].tensor; }

  // --- q and k, from what computes them ---

  AttentionRows from_producers(const AttentionTensor& operand, const AttentionTensor& other) {
    const std::set<TensorId> in_memory = tensors_read_besides(other);
    std::set<OperatorId> allowed;
    for (size_t k = 0; k < graph_.operators.size(); ++k) {
      const OperatorId id(k);
      if (op(id).pass == Pass::forward && applies_to_rows(op(id).kind) && !leaves_[result_of(id).at()] &&
          !in_memory.contains(result_of(id)))
        allowed.insert(id);
    }
    while (true) {
      RowBuilder builder(graph_, producers_, allowed);
      std::optional<RowExpression> made = builder.build(operand);
      std::set<OperatorId> wrong = builder.failed();
      for (const OperatorId id : builder.applied()) {
        if (!is_read_only_by(result_of(id), builder.applied())) wrong.insert(id);
      }
      if (!made || (wrong.empty() && builder.applied().empty())) return {operand, {}};
      if (!wrong.empty()) {
        for (const OperatorId id : wrong) allowed.erase(id);
        continue;
      }
      const std::optional<AttentionTensor> source = source_of(*made, operand);
      if (!source) return {operand, {}};
      absorbed_.insert(builder.applied().begin(), builder.applied().end());
      return {*source, std::move(*made)};
    }
  }

  // Tensors that the attention also reads in a role other than an operand's, such as keys that are values too.
  std::set<TensorId> tensors_read_besides(const AttentionTensor& other) const {
    std::set<TensorId> made = {other.tensor, attention_.v.tensor, attention_.d_o.tensor};
    for (const ScoreExpression* const score : {&attention_.score, &attention_.gradients}) {
      for (const AttentionTensor& term : score->terms) made.insert(term.tensor);
    }
    return made;
  }

  // Whether only the attention and these operators read it.
  bool is_read_only_by(TensorId tensor, const std::set<OperatorId>& operators) const {
    const std::vector<OperatorId>& readers = readers_[tensor.at()];
    return std::all_of(readers.begin(), readers.end(),
                       [&](OperatorId reader) { return own_.contains(reader) || operators.contains(reader); });
  }

  std::optional<AttentionTensor> source_of(const RowExpression& expression, const AttentionTensor& operand) const {
    for (const AttentionTensor& term : expression.terms) {
      const AttentionTensor made = with_columns(graph_, term);
      if (is_like(graph_, made, operand)) return made;
    }
    return std::nullopt;
  }

  // --- d_q and d_k, to what is computed from them ---

  // Follows the readers as long as they stay in the row. Where all that was found so far leads to one tensor, that may
  // be stored instead; the last such tensor is the best.
  AttentionRows to_readers(const AttentionTensor& gradient) {
    std::map<TensorId, AttentionTensor> open = {{gradient.tensor, gradient}};  // some of their readers are not absorbed
    std::set<OperatorId> followed;
    AttentionRows best{gradient, {}};
    std::set<OperatorId> absorbed_by_best;
    for (size_t k = producers_[gradient.tensor.at()].at() + 1; k < graph_.operators.size(); ++k) {
      const OperatorId id(k);
      if (own_.contains(id) || !applies_to_rows(op(id).kind)) continue;
      const std::optional<AttentionTensor> made = axes_of_result(op(id), open);
      if (!made) continue;
      followed.insert(id);
      open[made->tensor] = *made;
      std::erase_if(open, [&](const auto& each) { return is_complete(each.first, followed); });
      if (open.size() != 1 || open.begin()->first != made->tensor) continue;
      if (std::optional<RowExpression> expression = expression_of(gradient, *made, followed)) {
        best = {with_columns(graph_, *made), std::move(*expression)};
        absorbed_by_best = followed;
      }
    }
    absorbed_.insert(absorbed_by_best.begin(), absorbed_by_best.end());
    return best;
  }

  bool is_complete(TensorId tensor, const std::set<OperatorId>& followed) const {
    const std::vector<OperatorId>& readers = readers_[tensor.at()];
    return !leaves_[tensor.at()] && !readers.empty() &&
           std::all_of(readers.begin(), readers.end(), [&](OperatorId reader) { return followed.contains(reader); });
  }

  // The rows and batch indices of an operator's result, from the first input that is one of these tensors.
  std::optional<AttentionTensor> axes_of_result(const Operator& own,
                                                const std::map<TensorId, AttentionTensor>& open) const {
    for (const Access& input : own.inputs) {
      const auto known = open.find(input.tensor);
      if (known == open.end()) continue;
      const auto axis_of = [&](int axis) {
        if (axis < 0 || !input.axes[as_index(axis)].is_index() || input.axes[as_index(axis)].index() == kFixed)
          return -1;
        const auto found =
            std::find(own.outputs[0].axes.begin(), own.outputs[0].axes.end(), input.axes[as_index(axis)]);
        return found == own.outputs[0].axes.end() ? -1 : static_cast<int>(found - own.outputs[0].axes.begin());
      };
      const AttentionAxes& from = known->second.axes;
      AttentionTensor made{own.outputs[0].tensor, {}};
      for (const int axis : from.batch) made.axes.batch.push_back(axis_of(axis));
      made.axes.query = axis_of(from.query);
      made.axes.key = axis_of(from.key);
      return made;
    }
    return std::nullopt;
  }

  std::optional<RowExpression> expression_of(const AttentionTensor& gradient, const AttentionTensor& stored,
                                             const std::set<OperatorId>& followed) const {
    const AttentionTensor result = with_columns(graph_, stored);
    if (!is_like(graph_, result, gradient)) return std::nullopt;
    RowBuilder builder(graph_, producers_, followed);
    builder.give(gradient);
    std::optional<RowExpression> made = builder.build(result);
    if (!made || !builder.failed().empty() || builder.applied() != followed) return std::nullopt;
    const bool reads_own = std::any_of(made->terms.begin(), made->terms.end(), [&](const AttentionTensor& term) {
      const OperatorId producer = producers_[term.tensor.at()];
      return producer.valid() && (own_.contains(producer) || followed.contains(producer));
    });
    return reads_own ? std::nullopt : made;
  }

  const Graph& graph_;
  const std::vector<bool>& leaves_;
  const AttentionPattern& attention_;
  std::vector<OperatorId> producers_;
  std::vector<std::vector<OperatorId>> readers_;
  std::set<OperatorId> own_;
  std::set<OperatorId> absorbed_;
};

}  // namespace

std::optional<AbsorbedRows> absorbed_rows(const Graph& graph, const std::vector<bool>& leaves,
                                          const AttentionPattern& attention) {
  return RowFinder(graph, leaves, attention).run();
}

}  // namespace millrace
