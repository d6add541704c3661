#include "codegen/score_text.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "codegen/nest.h"
#include "codegen/recipe.h"

namespace millrace {
namespace {

constexpr double kLowestLogit = -131072.0;  // raised_logit of the preludes

using Kind = ScoreNode::Kind;

}  // namespace

bool takes_value(OperatorKind kind) { return kind == OperatorKind::power || kind == OperatorKind::power_dx; }

bool has_number(const RowNode& node) {
  return node.kind == RowNode::Kind::number || (node.kind == RowNode::Kind::apply && takes_value(node.op));
}

bool takes_value(const ScoreNode& node) { return node.kind == Kind::apply && takes_value(node.op); }

std::string formula_text(OperatorKind kind, double value, const std::vector<size_t>& inputs,
                         const std::string& number) {
  Operator op;
  op.kind = kind;
  op.value = value;
  op.inputs.resize(inputs.size());
  std::string text = recipe_of(op).front().expression;
  for (size_t input = 0; input < inputs.size(); ++input)
    codegen::replace_all(text, concat("$", input), concat("v", inputs[input]));
  codegen::replace_all(text, "VALUE", number);
  return text;
}

std::string score_text(const ScoreNode& node, size_t number, const ScoreTexts& texts) {
  switch (node.kind) {
    case Kind::score: return texts.score;
    case Kind::gradient: return texts.gradient;
    case Kind::number: return texts.number(number);
    case Kind::term: return texts.term(node.term);
    case Kind::query: return texts.query;
    case Kind::key: return texts.key;
    case Kind::apply: break;
  }
  std::string text = formula_text(node.op, node.value, node.inputs, concat("c", number));
  codegen::replace_all(text, "CONDITION", texts.condition);
  return text;
}

std::vector<bool> needed_for(const ScoreExpression& score, size_t result) {
  std::vector<bool> needed(score.nodes.size(), false);
  needed[result] = true;
  for (size_t k = score.nodes.size(); k-- > 0;) {
    for (const size_t input : score.nodes[k].inputs) needed[input] = needed[input] || needed[k];
  }
  return needed;
}

bool raises_logits(const Graph& graph, const ScoreExpression& score) {
  const bool by_number = std::any_of(score.nodes.begin(), score.nodes.end(), [&](const ScoreNode& node) {
    if (node.kind != Kind::number) return false;
    const Tensor& tensor = graph.tensor(node.number);
    return tensor.role == TensorRole::scalar || (tensor.value < kLowestLogit && !std::isinf(tensor.value));
  });
  return by_number || std::any_of(score.terms.begin(), score.terms.end(), [&](const AttentionTensor& term) {
           const Tensor& tensor = graph.tensor(term.tensor);
           return is_floating(tensor.dtype) && tensor.fixed;
         });
}

}  // namespace millrace
