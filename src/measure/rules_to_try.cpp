#include "measure/rules_to_try.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr int64_t kIntegers = 3;

bool compares_for_equality(OperatorKind kind) {
  return kind == OperatorKind::equal || kind == OperatorKind::not_equal || kind == OperatorKind::extremum_dx;
}

bool is_read(const Partition& partition, TensorId tensor) {
  return std::find(partition.reads.begin(), partition.reads.end(), tensor) != partition.reads.end();
}

bool is_number(const Tensor& tensor) {
  return tensor.role == TensorRole::scalar || tensor.role == TensorRole::constant;
}

// Values that the partition computes itself are rounded: whether they equal something may depend on the order of its
// operations.
bool are_given(const Graph& graph, const Partition& partition, const Operator& op) {
  return std::all_of(op.inputs.begin(), op.inputs.begin() + 2, [&](const Access& input) {
    return is_read(partition, input.tensor) || is_number(graph.tensor(input.tensor));
  });
}

DrawRules with_equal_numbers(const Graph& graph, DrawRules rules, const Partition& partition) {
  for (const OperatorId id : partition.operators) {
    const Operator& op = graph.operators[id.at()];
    if (!compares_for_equality(op.kind) || !are_given(graph, partition, op)) continue;
    for (size_t input = 0; input < 2; ++input) {
      DrawRule& rule = rules[op.inputs[input].tensor.at()];
      if (is_floating(rule.dtype) && is_read(partition, op.inputs[input].tensor)) rule.positions = kIntegers;
    }
  }
  return rules;
}

DrawRules all_positive(DrawRules rules) {
  for (DrawRule& rule : rules) {
    rule.middle = 0.625;
    rule.reach = 0.375;
  }
  return rules;
}

}  // namespace

std::vector<DrawRules> rules_to_try(const Graph& graph, const DrawRules& rules, const Partition& partition) {
  std::vector<DrawRules> tried = {with_equal_numbers(graph, rules, partition)};
  if (tried.front() != rules) tried.push_back(rules);
  tried.push_back(all_positive(rules));
  return tried;
}

}  // namespace millrace
