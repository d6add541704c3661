// The ScoreExpression of an attention, evaluated by the reference for one head, with bounds on the errors of float32.
// Test: tests/measure/attention_reference_data_test.cpp
#pragma once

#include <functional>
#include <vector>

#include "candidates/candidates.h"
#include "measure/reference_data.h"
#include "reference/bounded.h"

namespace millrace {

using ScoreNumber = Bounded<24>;
using ScoreMatrix = std::vector<ScoreNumber>;  // [query][key]

class ScoreEvaluator {
 public:
  ScoreEvaluator(const Graph& graph, const Attention& attention, const ReferenceData& reference_data);

  // A head's element of a term.
  using Term = std::function<double(size_t term, int64_t query, int64_t key)>;

  // The inputs of the softmax, from the scaled scores. -inf outside the window.
  ScoreMatrix logits(const ScoreMatrix& scores, const Term& term) const;

  struct Gradients {
    ScoreMatrix d_scores;  // empty if neither queries nor keys have a gradient
    ScoreMatrix d_terms;   // empty if no term has a gradient
  };
  // `d_logits`: the gradients of the logits.
  Gradients gradients(const ScoreMatrix& scores, const ScoreMatrix& d_logits, const Term& term) const;

 private:
  Values<ScoreNumber> values(const ScoreMatrix& scores, const ScoreMatrix& d_logits, const Term& term) const;

  const Attention& attention_;
  Graph head_;  // tensor k is node k, along the queries and keys of one head
};

// By how much a logit grows with its score, where the expression is linear in it: the product of its constant factors.
double slope_of(const Graph& graph, const ScoreExpression& expression);

// For a boolean term that hides scores, the value where they are visible; nothing for other terms.
std::optional<double> visible_value(const Graph& graph, const ScoreExpression& expression, size_t term);

// The values of a node that is a number: a constant or a scalar argument.
double number_of_node(const Graph& graph, const ScoreNode& node, const ReferenceData& reference_data);

}  // namespace millrace
