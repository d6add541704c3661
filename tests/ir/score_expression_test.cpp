// The expressions of scores found in program text, and the windows taken out of them.
#include "ir/score_expression.h"

#include <gtest/gtest.h>

#include "fusion/fusion_text.h"
#include "ir/attention_family.h"

namespace millrace {
namespace {

// "add(score, term c[batch 0, query 1, key 2])"
std::string formula_of(const Graph& graph, const ScoreExpression& expression, size_t number) {
  const ScoreNode& node = expression.nodes[number];
  std::vector<std::string> inputs;
  switch (node.kind) {
    case ScoreNode::Kind::score: return "score";
    case ScoreNode::Kind::gradient: return "gradient";
    case ScoreNode::Kind::number: return concat(graph.tensor(node.number).value);
    case ScoreNode::Kind::query: return "query";
    case ScoreNode::Kind::key: return "key";
    case ScoreNode::Kind::term: {
      const AttentionTensor& term = expression.terms[node.term];
      return concat(graph.tensor(term.tensor).name, "[", join(term.axes.batch, " "), "; ", term.axes.query, " ",
                    term.axes.key, "]");
    }
    case ScoreNode::Kind::apply:
      for (const size_t input : node.inputs) inputs.push_back(formula_of(graph, expression, input));
  }
  return concat(info_of(node.op).name, "(", join(inputs, ", "), ")");
}

std::string formulas_of(const Graph& graph, const AttentionPattern& found) {
  std::string text;
  if (found.window.first != -KeyWindow::kUnlimited) text += concat("from ", found.window.first, " ");
  if (found.window.last != KeyWindow::kUnlimited) text += concat("to ", found.window.last, " ");
  if (found.gradients.nodes.empty()) return text + "plain";
  text += formula_of(graph, found.gradients, found.gradients.logit);
  text += concat(" | ", formula_of(graph, found.gradients, *found.gradients.d_score));
  if (found.gradients.d_term) text += concat(" | ", formula_of(graph, found.gradients, *found.gradients.d_term));
  return text;
}

std::string expression_of(const AttentionProgram& program) {
  const TrainingGraph training = training_of(program.text());
  const FoundAttentions found = find_attentions(training.graph, callers_of(training));
  if (found.attentions.empty()) return found.rejected.empty() ? "none" : found.rejected.front().reason;
  return formulas_of(training.graph, found.attentions.front());
}

std::string expression_of(const std::string& arguments, const std::string& weights) {
  return expression_of(attention_with("", arguments, weights).program);
}

TEST(ScoreExpressions, OfTheFamily) {
  std::string text;
  for (const NamedAttention& each : attention_family())
    text += concat(each.name, ": ", expression_of(each.program), "\n");
  EXPECT_EQ(text,
            "bias with a gradient, as in T5: add(score, c[-1 0; 1 2]) | gradient | gradient\n"
            "bias for all heads, scaled later, causal: to 0 multiply(add(score, c[-1 -1; 0 1]), 0.75) | "
            "multiply(gradient, 0.75) | multiply(gradient, 0.75)\n"
            "additive padding mask: add(score, m[0 -1; -1 1]) | gradient\n"
            "boolean padding mask: where(m[0 -1; -1 1], score, -65504) | where(m[0 -1; -1 1], gradient, 0)\n"
            "boolean mask that hides: where(m[-1 -1; 0 1], -inf, score) | where(m[-1 -1; 0 1], 0, gradient)\n"
            "soft-cap, as in Gemma: to 0 multiply(2, tanh(score)) | tanh_dx(tanh(score), multiply(gradient, 2))\n"
            "ALiBi: to 0 add(score, multiply(c[-1 0; -1 -1], subtract(key, query))) | gradient\n"
            "sliding window: from -2 to 2 plain\n"
            "window with a soft-cap and a bias: from -1 add(tanh(score), c[-1 0; 1 2]) | tanh_dx(tanh(score), "
            "gradient) | gradient\n"
            "packed sequences: to 0 where(equal(g[0 -1; 1 -1], g[0 -1; -1 1]), score, -30000) | where(equal(g[0 -1; 1 "
            "-1], g[0 -1; -1 1]), gradient, 0)\n"
            "two inner indices, as of a rotary embedding: plain\n");
}

TEST(ScoreExpressions, WindowsAreTakenFromPositions) {
  const auto masked = [](const std::string& condition, const std::string& hidden = "-np.inf") {
    return expression_of("", concat("softmax(np.where(", condition, ", s, ", hidden, "))"));
  };
  const std::string& q = kQueryPosition;
  const std::string& k = kKeyPosition;
  EXPECT_EQ(masked(concat(k, " <= ", q)), "to 0 plain");
  EXPECT_EQ(masked(concat(k, " < ", q, " + 3")), "to 2 plain");
  EXPECT_EQ(masked(concat(q, " - ", k, " < 3")), "from -2 plain");
  EXPECT_EQ(masked(concat("np.logical_not(", k, " > ", q, ")")), "to 0 plain");
  EXPECT_EQ(masked(concat(k, " <= ", q), "-30000.0"), "to 0 plain");
  EXPECT_EQ(expression_of("", concat("softmax(np.where(", k, " > ", q, ", -np.inf, s))")), "to 0 plain");
  // Some scores of -1 are visible; the first query would see no key; not a window.
  EXPECT_EQ(masked(concat(k, " <= ", q), "-1.0").substr(0, 5), "where");
  EXPECT_EQ(masked(concat(k, " < ", q)).substr(0, 5), "where");
  EXPECT_EQ(masked(concat("np.logical_or(", k, " <= ", q, ", ", k, " < 2)")).substr(0, 5), "where");
}

// A term that others read too stays in memory; positions are computed wherever they are needed.
TEST(ScoreExpressions, TermsThatOthersReadAreRead) {
  AttentionProgram program = attention_with("", ", c: fixed.float16[J], d: fixed.float16[K]", "softmax(s + t)").program;
  program.scaled = "\n    t = c[:, None] - d[None, :]";
  EXPECT_EQ(expression_of(program), "add(score, subtract(c[-1 -1; 0 -1], d[-1 -1; -1 0])) | gradient");
  program.results = "o, t";
  EXPECT_EQ(expression_of(program), "add(score, t[-1 -1; 0 1]) | gradient");
}

TEST(ScoreExpressions, OfGradientsThatAreNotFused) {
  EXPECT_EQ(expression_of(", c: float16[B, H, J, K]", "softmax(s + c)"),
            "the caller needs one of its intermediate tensors");
  EXPECT_EQ(expression_of(", c: float16[H, K]", "softmax(s + c[:, None, :])"),
            "the gradient of a term of its scores is summed over queries or keys");
  EXPECT_EQ(expression_of(", c: float16[H, J, K], d: float16[J, K]", "softmax(s + c + d)"),
            "several terms of its scores have gradients");
}

}  // namespace
}  // namespace millrace
