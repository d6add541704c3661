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

Operator operator_of(const ScoreNode& node) {
  Operator op;
  op.kind = node.op;
  op.value = node.value;
  op.inputs.resize(node.inputs.size());
  return op;
}

}  // namespace

bool takes_value(const ScoreNode& node) {
  return node.kind == Kind::apply && (node.op == OperatorKind::power || node.op == OperatorKind::power_dx);
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
  std::string text = recipe_of(operator_of(node)).front().expression;
  for (size_t input = 0; input < node.inputs.size(); ++input)
    codegen::replace_all(text, concat("$", input), concat("v", node.inputs[input]));
  codegen::replace_all(text, "VALUE", concat("c", number));
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
