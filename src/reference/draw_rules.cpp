#include "reference/draw_rules.h"

#include <algorithm>
#include <cmath>

#include "ir/index_limits.h"
#include "reference/domain_demands.h"
#include "reference/input_roles.h"
#include "reference/value_samples.h"

namespace millrace {
namespace {

constexpr int kMostRounds = 8;                   // of narrowing ranges
constexpr double kNear = 0.1;                    // deviation of a norm's weights, and of biases
constexpr double kDistinct = 0.1;                // at least this share of its middle: elements differ
constexpr int64_t kSmallIntegers = 4;            // of integers that select nothing
constexpr double kUniform = 1.7320508075688772;  // √3: the reach of uniform numbers with a deviation of one
constexpr double kSmallest = 0x1p-16;            // sizes of what trials draw in place of computed values
constexpr double kLargest = 0x1p12;

double given_size(const InputRole& role) {
  switch (role.kind) {
    case InputRole::Kind::activation: return 1;
    case InputRole::Kind::bias:
    case InputRole::Kind::factor: return kNear;
    case InputRole::Kind::weight: return 1 / std::sqrt(static_cast<double>(role.fan_in));
  }
  return 1;
}

DrawRule given_rule(const Tensor& tensor, const InputRole& role) {
  const double middle = role.kind == InputRole::Kind::factor ? 1 : 0;
  const double reach = kUniform * given_size(role);
  if (tensor.role == TensorRole::scalar) return drawn_between(tensor.dtype, 0.5, 1);
  return drawn_between(tensor.dtype, middle - reach, middle + reach);
}

// The part of the range that the demand allows. If almost nothing is left, the range begins at the demanded bound.
DrawRule narrowed(const DrawRule& rule, const Demand& demand) {
  double low = std::max(rule.middle - rule.reach, demand.low);
  double high = std::min(rule.middle + rule.reach, demand.high);
  const double least = kDistinct * std::max(std::abs(low), std::abs(high));
  if (high - low >= least) return drawn_between(rule.dtype, low, high);
  if (low > rule.middle - rule.reach) high = std::min(demand.high, low + std::max(rule.reach, least));
  if (high < rule.middle + rule.reach) low = std::max(demand.low, high - std::max(rule.reach, least));
  return high > low ? drawn_between(rule.dtype, low, high) : rule;
}

// The rule by which a trial draws a computed value: its range, with elements that differ.
DrawRule computed_rule(DType dtype, const Samples& samples) {
  const SampleStatistics values = statistics_of(samples);
  const double size = std::hypot(values.mean, values.deviation);
  if (values.count == 0 || size == 0) return drawn_between(dtype, -kUniform, kUniform);
  const double scale = size < kSmallest || size > kLargest ? 1 / size : 1;
  const double low = std::max(values.least, values.mean - kUniform * values.deviation);
  const double high = std::min(values.most, values.mean + kUniform * values.deviation);
  DrawRule rule = drawn_between(dtype, scale * low, scale * high);
  rule.reach = std::max(rule.reach, kDistinct * std::abs(rule.middle));
  return rule;
}

bool is_number(const DrawRule& rule) { return is_floating(rule.dtype) && rule.positions == 0; }

bool narrow(const Graph& graph, const std::vector<Demand>& demands, DrawRules& rules) {
  bool changed = false;
  for (size_t k = 0; k < rules.size(); ++k) {
    const TensorRole role = graph.tensors[k].role;
    if (role == TensorRole::computed || role == TensorRole::constant || !is_number(rules[k])) continue;
    const DrawRule found = narrowed(rules[k], demands[k]);
    changed = changed || found != rules[k];
    rules[k] = found;
  }
  return changed;
}

}  // namespace

DrawRule drawn_between(DType dtype, double low, double high) { return {dtype, 0, (low + high) / 2, (high - low) / 2}; }

double size_of(const DrawRule& rule) { return std::hypot(rule.middle, rule.reach / kUniform); }

double drawn_value(const DrawRule& rule, double uniform) {
  if (rule.dtype == DType::boolean) return uniform < 0 ? 0 : 1;
  if (rule.positions > 0) {
    const auto count = static_cast<double>(rule.positions);
    return std::min(std::floor((uniform + 1) / 2 * count), count - 1);
  }
  // Volatile, so that no addition absorbs the product and every device draws the same bits.
  const volatile double product = rule.reach * uniform;
  return rule.middle + product;
}

DrawRules draw_rules(const Graph& graph) {
  const std::vector<int64_t> limits = index_limits(graph);
  const std::vector<InputRole> roles = input_roles(graph);
  DrawRules rules;
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    rules.push_back(given_rule(graph.tensors[k], roles[k]));
    rules[k].positions = limits[k] == 0 && is_integer(rules[k].dtype) ? kSmallIntegers : limits[k];
  }
  std::vector<Samples> samples = sample_values(graph, rules);
  for (int round = 0; round < kMostRounds && narrow(graph, domain_demands(graph, samples), rules); ++round)
    samples = sample_values(graph, rules);
  for (size_t k = 0; k < rules.size(); ++k) {
    if (graph.tensors[k].role == TensorRole::computed && is_number(rules[k]))
      rules[k] = computed_rule(rules[k].dtype, samples[k]);
  }
  return rules;
}

}  // namespace millrace
