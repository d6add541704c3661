#include "measure/score_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace {
namespace {

using Kind = ScoreNode::Kind;

constexpr int kQueryIndex = 0;
constexpr int kKeyIndex = 1;

// The axes of a node's values: both, unless it is a position or a term along one of them.
std::vector<int> indices_of_node(const ScoreExpression& expression, const ScoreNode& node) {
  if (node.kind == Kind::number) return {};
  if (node.kind == Kind::query) return {kQueryIndex};
  if (node.kind == Kind::key) return {kKeyIndex};
  if (node.kind != Kind::term) return {kQueryIndex, kKeyIndex};
  std::vector<int> indices;
  if (expression.terms[node.term].axes.query >= 0) indices.push_back(kQueryIndex);
  if (expression.terms[node.term].axes.key >= 0) indices.push_back(kKeyIndex);
  return indices;
}

Tensor tensor_of(const ScoreExpression& expression, const ScoreNode& node) {
  Tensor tensor;
  tensor.role = node.kind == Kind::apply || node.kind == Kind::query || node.kind == Kind::key ? TensorRole::computed
                                                                                               : TensorRole::argument;
  for (const int index : indices_of_node(expression, node)) tensor.dims.emplace_back(static_cast<size_t>(index));
  return tensor;
}

Access access_of(const ScoreExpression& expression, size_t node) {
  Access access{TensorId(node), {}};
  for (const int index : indices_of_node(expression, expression.nodes[node])) access.axes.emplace_back(index);
  return access;
}

Operator operator_of(const ScoreExpression& expression, size_t number) {
  const ScoreNode& node = expression.nodes[number];
  Operator op;
  op.kind = node.kind == Kind::apply ? node.op : OperatorKind::index;
  op.value = node.value;
  if (node.kind == Kind::apply) {
    op.space = {DimId(kQueryIndex), DimId(kKeyIndex)};
    for (const size_t input : node.inputs) op.inputs.push_back(access_of(expression, input));
  } else {
    op.space = {DimId(node.kind == Kind::query ? kQueryIndex : kKeyIndex)};
  }
  op.reduced.assign(op.space.size(), false);
  op.outputs = {{TensorId(number), in_order(op.space.size())}};
  return op;
}

// The value that a boolean term has where scores are visible: follows a where's condition to the term.
class Visibility {
 public:
  Visibility(const Graph& graph, const ScoreExpression& expression, size_t term)
      : graph_(graph), expression_(expression), term_(term) {}

  std::optional<double> run() const {
    const std::vector<bool> scored = depends_on(expression_, Kind::score);
    for (const ScoreNode& node : expression_.nodes) {
      if (node.kind != Kind::apply || node.op != OperatorKind::where) continue;
      if (scored[node.inputs[1]] == scored[node.inputs[2]]) continue;
      if (const std::optional<double> found = find(node.inputs[0], scored[node.inputs[1]] ? 1 : 0)) return found;
    }
    return std::nullopt;
  }

 private:
  std::optional<double> find(size_t number, double visible) const {
    const ScoreNode& node = expression_.nodes[number];
    if (node.kind == Kind::term && node.term == term_ &&
        graph_.tensor(expression_.terms[term_].tensor).dtype == DType::boolean)
      return visible;
    if (node.kind != Kind::apply) return std::nullopt;
    const double wanted = node.op == OperatorKind::logical_not ? 1 - visible : visible;
    for (const size_t input : node.inputs) {
      if (const std::optional<double> found = find(input, wanted)) return found;
    }
    return std::nullopt;
  }

  const Graph& graph_;
  const ScoreExpression& expression_;
  size_t term_;
};

}  // namespace

double number_of_node(const Graph& graph, const ScoreNode& node, const ReferenceData& reference_data) {
  return factor_of(graph, {node.number}, reference_data);
}

ScoreEvaluator::ScoreEvaluator(const Graph& graph, const Attention& attention, const ReferenceData& reference_data)
    : attention_(attention) {
  const ScoreExpression& expression = attention.score;
  head_.dims = {{"query", attention.queries}, {"key", attention.keys}};
  for (size_t k = 0; k < expression.nodes.size(); ++k) {
    const ScoreNode& node = expression.nodes[k];
    head_.tensors.push_back(tensor_of(expression, node));
    if (node.kind == Kind::number) {
      head_.tensors.back().role = TensorRole::constant;
      head_.tensors.back().value = number_of_node(graph, node, reference_data);
    }
    if (head_.tensors.back().role == TensorRole::computed) head_.operators.push_back(operator_of(expression, k));
  }
}

Values<ScoreNumber> ScoreEvaluator::values(const ScoreMatrix& scores, const ScoreMatrix& d_logits,
                                           const Term& term) const {
  const ScoreExpression& expression = attention_.score;
  Values<ScoreNumber> made(expression.nodes.size());
  for (size_t k = 0; k < expression.nodes.size(); ++k) {
    const ScoreNode& node = expression.nodes[k];
    if (node.kind == Kind::score) made[k] = scores;
    if (node.kind == Kind::gradient) made[k] = d_logits;
    if (node.kind != Kind::term) continue;
    const AttentionAxes& axes = expression.terms[node.term].axes;
    for (int64_t query = 0; query < (axes.query >= 0 ? attention_.queries : 1); ++query) {
      for (int64_t key = 0; key < (axes.key >= 0 ? attention_.keys : 1); ++key)
        made[k].emplace_back(term(node.term, query, key));
    }
  }
  if (interpret(head_, made, RandomState())) return made;
  // Too large for the reference. No candidate agrees with NaN.
  const ScoreMatrix none(scores.size(), ScoreNumber(std::numeric_limits<double>::quiet_NaN()));
  made.assign(expression.nodes.size(), none);
  return made;
}

ScoreMatrix ScoreEvaluator::logits(const ScoreMatrix& scores, const Term& term) const {
  ScoreMatrix made = scores;
  if (attention_.has_score_expression())
    made = values(scores, ScoreMatrix(scores.size()), term)[attention_.score.logit];
  const KeyWindow window = attention_.keys_seen();
  for (int64_t query = 0; query < attention_.queries; ++query) {
    for (int64_t key = 0; key < attention_.keys; ++key) {
      if (key < query + window.first || key > query + window.last)
        made[as_index(query * attention_.keys + key)] = -std::numeric_limits<double>::infinity();
    }
  }
  return made;
}

ScoreEvaluator::Gradients ScoreEvaluator::gradients(const ScoreMatrix& scores, const ScoreMatrix& d_logits,
                                                    const Term& term) const {
  const ScoreExpression& expression = attention_.score;
  if (!attention_.has_score_expression()) return {d_logits, {}};
  Values<ScoreNumber> made = values(scores, d_logits, term);
  return {expression.d_score ? made[*expression.d_score] : ScoreMatrix(),
          expression.d_term ? made[*expression.d_term] : ScoreMatrix()};
}

double slope_of(const Graph& graph, const ScoreExpression& expression) {
  const std::vector<bool> scored = depends_on(expression, Kind::score);
  double slope = 1;
  for (size_t k = expression.logit; k < expression.nodes.size() && expression.nodes[k].kind == Kind::apply;) {
    const ScoreNode& node = expression.nodes[k];
    const auto path = std::find_if(node.inputs.begin(), node.inputs.end(), [&](size_t input) { return scored[input]; });
    for (const size_t input : node.inputs) {
      const ScoreNode& other = expression.nodes[input];
      if (other.kind != Kind::number || graph.tensor(other.number).role != TensorRole::constant) continue;
      const double value = std::abs(graph.tensor(other.number).value);
      if (value == 0 || !std::isfinite(value)) continue;
      slope *= node.op == OperatorKind::multiply ? value : node.op == OperatorKind::divide ? 1 / value : 1;
    }
    if (path == node.inputs.end()) break;
    k = *path;
  }
  return slope;
}

std::optional<double> visible_value(const Graph& graph, const ScoreExpression& expression, size_t term) {
  return Visibility(graph, expression, term).run();
}

}  // namespace millrace
