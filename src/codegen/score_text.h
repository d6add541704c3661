// The formulas of an attention's scores as C++ expressions, one for each node, from the same recipes as generated
// kernels. Test: tests/measure/attention_trial_test.cpp, tests/codegen/cpu_attention_test.cpp
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/row_expression.h"
#include "ir/score_expression.h"

namespace millrace {

// The texts of the nodes that are not operators, and of the condition of a causal mask.
struct ScoreTexts {
  std::string score;
  std::string gradient;
  std::function<std::string(size_t node)> number;  // a number that the kernel takes, by its node
  std::function<std::string(size_t term)> term;
  std::string query;  // positions as numbers
  std::string key;
  std::string condition;
};

// Whether the operator's recipe takes Operator::value as a number of the kernel.
bool takes_value(OperatorKind kind);
bool takes_value(const ScoreNode& node);
// Whether a node is a number that the kernel takes.
bool has_number(const RowNode& node);

// An elementwise operator of the variables vK, for each input K; `number`: its value, if it takes one.
std::string formula_text(OperatorKind kind, double value, const std::vector<size_t>& inputs, const std::string& number);

// The value of node `number`, where node K is the variable vK.
std::string score_text(const ScoreNode& node, size_t number, const ScoreTexts& texts);

// For each node, whether the result depends on it.
std::vector<bool> needed_for(const ScoreExpression& score, size_t result);

// Whether a logit may be so low that kernels must raise it: by a number, or by a tensor that is not trained.
bool raises_logits(const Graph& graph, const ScoreExpression& score);

}  // namespace millrace
