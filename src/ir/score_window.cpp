#include "ir/score_window.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace millrace {
namespace {

constexpr double kHidden = -1e4;  // a score this low or lower is meant to have no weight

using Kind = ScoreNode::Kind;

// query · position of the query + key · position of the key + constant
struct Affine {
  double query = 0;
  double key = 0;
  double constant = 0;
};

Affine combined(const Affine& a, const Affine& b, double factor) {
  return {a.query + factor * b.query, a.key + factor * b.key, a.constant + factor * b.constant};
}

KeyWindow common(const KeyWindow& one, const KeyWindow& other) {
  return {std::max(one.first, other.first), std::min(one.last, other.last)};
}

class WindowFinder {
 public:
  WindowFinder(const Graph& graph, int64_t queries, int64_t keys, const ScoreExpression& expression)
      : graph_(graph),
        queries_(queries),
        keys_(keys),
        expression_(expression),
        of_score_(depends_on(expression, Kind::score)),
        of_gradient_(depends_on(expression, Kind::gradient)),
        to_(expression.nodes.size()) {
    std::iota(to_.begin(), to_.end(), size_t{0});
  }

  KeyWindow run() {
    walk(expression_.logit);
    if (window_.is_everything() || !every_query_sees_a_key()) {
      std::iota(to_.begin(), to_.end(), size_t{0});
      return {};
    }
    for (size_t k = 0; k < expression_.nodes.size(); ++k) pass_gradient(k);
    return window_;
  }

  const std::vector<size_t>& replacements() const { return to_; }

 private:
  const ScoreNode& node(size_t k) const { return expression_.nodes[k]; }

  std::optional<double> constant(size_t k) const {
    if (node(k).kind != Kind::number || graph_.tensor(node(k).number).role != TensorRole::constant) return std::nullopt;
    return graph_.tensor(node(k).number).value;
  }
  bool is_hidden(size_t k) const { return constant(k).value_or(0) <= kHidden; }

  // --- Conditions ---

  std::optional<Affine> affine(size_t k) const {
    const ScoreNode& own = node(k);
    if (own.kind == Kind::query) return Affine{1, 0, 0};
    if (own.kind == Kind::key) return Affine{0, 1, 0};
    if (const std::optional<double> number = constant(k)) return Affine{0, 0, *number};
    if (own.kind != Kind::apply) return std::nullopt;
    std::vector<Affine> inputs;
    for (const size_t input : own.inputs) {
      const std::optional<Affine> found = affine(input);
      if (!found) return std::nullopt;
      inputs.push_back(*found);
    }
    switch (own.op) {
      case OperatorKind::copy: return inputs[0];
      case OperatorKind::negate: return combined({}, inputs[0], -1);
      case OperatorKind::add: return combined(inputs[0], inputs[1], 1);
      case OperatorKind::subtract: return combined(inputs[0], inputs[1], -1);
      default: return std::nullopt;
    }
  }

  // Where less < more, or equal if `equal` allows it.
  enum class Equal { allowed, excluded };
  std::optional<KeyWindow> comparison(size_t less, size_t more, Equal equal) const {
    const std::optional<Affine> one = affine(less);
    const std::optional<Affine> other = affine(more);
    if (!one || !other) return std::nullopt;
    const Affine difference = combined(*one, *other, -1);
    if (std::abs(difference.key) != 1 || difference.query != -difference.key) return std::nullopt;
    const double most = std::floor(-difference.constant);  // of ±(key - query)
    if (std::abs(most) >= static_cast<double>(KeyWindow::kUnlimited)) return std::nullopt;
    const int64_t step = equal == Equal::excluded && most == -difference.constant ? 1 : 0;
    const int64_t bound = static_cast<int64_t>(most) - step;
    KeyWindow made;
    (difference.key > 0 ? made.last : made.first) = difference.key > 0 ? bound : -bound;
    return made;
  }

  // The window where a condition holds, or where it does not.
  enum class Outcome { holds, fails };
  std::optional<KeyWindow> window_of(size_t k, Outcome outcome) const {
    const ScoreNode& own = node(k);
    if (own.kind != Kind::apply) return std::nullopt;
    const bool holds = outcome == Outcome::holds;
    switch (own.op) {
      case OperatorKind::less:
        return holds ? comparison(own.inputs[0], own.inputs[1], Equal::excluded)
                     : comparison(own.inputs[1], own.inputs[0], Equal::allowed);
      case OperatorKind::less_equal:
        return holds ? comparison(own.inputs[0], own.inputs[1], Equal::allowed)
                     : comparison(own.inputs[1], own.inputs[0], Equal::excluded);
      case OperatorKind::logical_not: return window_of(own.inputs[0], holds ? Outcome::fails : Outcome::holds);
      case OperatorKind::logical_and:
      case OperatorKind::logical_or: {
        if (holds != (own.op == OperatorKind::logical_and)) return std::nullopt;
        const std::optional<KeyWindow> one = window_of(own.inputs[0], outcome);
        const std::optional<KeyWindow> other = window_of(own.inputs[1], outcome);
        return one && other ? std::optional(common(*one, *other)) : std::nullopt;
      }
      default: return std::nullopt;
    }
  }

  // --- From the logit to the score ---

  void walk(size_t k) {
    const ScoreNode& own = node(k);
    if (own.kind != Kind::apply) return;
    size_t path = own.inputs.size();
    for (size_t input = 0; input < own.inputs.size(); ++input) {
      if (!of_score_[own.inputs[input]]) continue;
      if (path < own.inputs.size()) return;  // two of them
      path = input;
    }
    if (path == own.inputs.size()) return;
    take(k, path);
    if (keeps_hidden(own, path)) walk(own.inputs[path]);
  }

  void take(size_t k, size_t path) {
    const ScoreNode& own = node(k);
    std::optional<KeyWindow> found;
    if (own.op == OperatorKind::causal_mask) {
      found = KeyWindow{-KeyWindow::kUnlimited, 0};
    } else if (own.op == OperatorKind::where && path > 0 && is_hidden(own.inputs[3 - path])) {
      found = window_of(own.inputs[0], path == 1 ? Outcome::holds : Outcome::fails);
    }
    if (!found) return;
    window_ = common(window_, *found);
    to_[k] = own.inputs[path];
  }

  // Whether a score that is hidden before the operator is hidden after it.
  bool keeps_hidden(const ScoreNode& own, size_t path) const {
    switch (own.op) {
      case OperatorKind::add:
      case OperatorKind::copy:
      case OperatorKind::causal_mask: return true;
      case OperatorKind::subtract: return path == 0;
      case OperatorKind::where: return path > 0 && is_hidden(own.inputs[3 - path]);
      case OperatorKind::multiply: return constant(own.inputs[1 - path]).value_or(0) >= 1;
      default: return false;
    }
  }

  bool every_query_sees_a_key() const {
    return window_.first <= window_.last && window_.last >= 0 && queries_ - 1 + window_.first <= keys_ - 1;
  }

  // The gradient of a hidden score is zero already.
  void pass_gradient(size_t k) {
    const ScoreNode& own = node(k);
    if (own.kind != Kind::apply || !of_gradient_[k]) return;
    if (own.op == OperatorKind::causal_mask_dx && window_.last <= 0) to_[k] = own.inputs[0];
    if (own.op != OperatorKind::where) return;
    const size_t path = of_gradient_[own.inputs[1]] ? 1 : 2;
    if (of_gradient_[own.inputs[3 - path]] || constant(own.inputs[3 - path]) != 0.0) return;
    const std::optional<KeyWindow> found = window_of(own.inputs[0], path == 1 ? Outcome::holds : Outcome::fails);
    if (found && common(*found, window_) == window_) to_[k] = own.inputs[path];
  }

  const Graph& graph_;
  int64_t queries_;
  int64_t keys_;
  const ScoreExpression& expression_;
  std::vector<bool> of_score_;
  std::vector<bool> of_gradient_;
  std::vector<size_t> to_;
  KeyWindow window_;
};

}  // namespace

KeyWindow take_window(const Graph& graph, int64_t queries, int64_t keys, ScoreExpression& expression) {
  if (expression.nodes.empty()) return {};
  WindowFinder finder(graph, queries, keys, expression);
  const KeyWindow window = finder.run();
  expression = replaced(expression, finder.replacements());
  return window;
}

}  // namespace millrace
