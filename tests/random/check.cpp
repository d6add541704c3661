#include "random/check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "autodiff/differentiate.h"
#include "autodiff/verify.h"
#include "base/text.h"
#include "frontend/frontend.h"
#include "ir/verify.h"
#include "random/branches.h"
#include "random/fused_check.h"
#include "random/inputs.h"
#include "random/value.h"
#include "reference/bounded.h"
#include "reference/dual.h"

namespace millrace::random_programs {
namespace {

using Real = Bounded<53>;
using Tangent = Dual<Real>;

// <a, b> with its error bound, and the sum of its terms' magnitudes.
struct InnerProduct {
  Real sum;
  double magnitude = 0;

  void add(const Real& a, const Real& b) {
    const Real term = a * b;
    sum = sum + term;
    magnitude += std::abs(term.value);
  }
};

// The message of a check whose two numbers differ.
std::string differ(const std::string& what, double a, const std::string& other, double b, double tolerance) {
  return concat(what, " ", number_text(a), ", ", other, " ", number_text(b), ", tolerance ", number_text(tolerance));
}

Values<Real> training_values(const TrainingGraph& training, const Inputs& inputs) {
  const Graph& graph = training.graph;
  Values<Real> values(graph.tensors.size());
  for (size_t i = 0; i < graph.arguments.size(); ++i) {
    values[graph.arguments[i].at()].assign(inputs.arguments[i].begin(), inputs.arguments[i].end());
  }
  for (size_t i = 0; i < training.result_gradients.size(); ++i) {
    values[training.result_gradients[i].at()].assign(inputs.result_gradients[i].begin(),
                                                     inputs.result_gradients[i].end());
  }
  return values;
}

Values<Tangent> forward_values(const Graph& graph, const Inputs& inputs) {
  Values<Tangent> values(graph.tensors.size());
  for (size_t i = 0; i < graph.arguments.size(); ++i) {
    for (size_t e = 0; e < inputs.arguments[i].size(); ++e) {
      values[graph.arguments[i].at()].push_back({Real(inputs.arguments[i][e]), Real(inputs.direction[i][e])});
    }
  }
  return values;
}

// How reliable a failure for one draw of inputs is.
enum class Weight {
  certain,
  kink,       // finite differences may have crossed one: try other inputs
  undecided,  // rounding decided a branch, so the derivative is not unique: try other inputs
};

struct Findings {
  std::optional<std::string> complaint;
  Weight weight = Weight::certain;
  double looseness = 0;
};

Findings certain(std::string complaint) { return {std::move(complaint), Weight::certain, 0}; }

// Central differences of <u, f> along the direction. A step size passes if it agrees with the derivative within the
// rounding error, divided by the step size, and the truncation error, estimated from the next coarser step size:
// D(h) = D + c·h² + …, so (D(r·h) - D(h)) / (r² - 1) is c·h². Steps across kinks (relu, max, where) are not valid.
std::optional<std::string> check_differences(const Graph& forward, const Inputs& inputs, const Real& objective,
                                             const Real& derivative) {
  static constexpr std::array<int, 4> kSteps = {13, 17, 20, kFinestStep};  // 2^-13 = 1.2e-4 to 2^-23 = 1.2e-7
  double coarser = 0;
  std::string complaint;
  for (size_t k = 0; k < kSteps.size(); ++k) {
    const double h = std::exp2(-kSteps[k]);
    std::array<double, 2> at{};
    for (const size_t side : {0U, 1U}) {
      Values<double> values = values_at(forward, inputs, side == 0 ? h : -h);
      const Result<Done> done = interpret<double>(forward, values, inputs.random);
      if (!done) return to_string(done.error());
      for (size_t r = 0; r < forward.results.size(); ++r) {
        const std::vector<double>& result = values[forward.results[r].tensor.at()];
        for (size_t e = 0; e < result.size(); ++e) at[side] += inputs.result_gradients[r][e] * result[e];
      }
    }
    const double quotient = (at[0] - at[1]) / (2 * h);
    if (k > 0) {
      const double ratio = std::exp2(kSteps[k] - kSteps[k - 1]);
      const double truncation = std::abs(coarser - quotient) / (ratio * ratio - 1);
      const double tolerance = 2 * (objective.error / h + truncation + derivative.error);
      if (std::abs(quotient - derivative.value) <= tolerance) return std::nullopt;
      complaint = differ("finite difference", quotient, "derivative", derivative.value, tolerance);
    }
    coarser = quotient;
  }
  return complaint;
}

Findings examine(const Graph& forward, const TrainingGraph& training, const Inputs& inputs) {
  Values<Real> reverse = training_values(training, inputs);
  const Result<Done> backward = interpret<Real>(training.graph, reverse, inputs.random);
  if (!backward) return certain(to_string(backward.error()));
  Values<Tangent> tangents = forward_values(forward, inputs);
  const Result<Done> done = interpret<Tangent>(forward, tangents, inputs.random);
  if (!done) return certain(to_string(done.error()));

  InnerProduct objective;   // <u, f>
  InnerProduct by_tangent;  // <u, J v>
  for (size_t r = 0; r < forward.results.size(); ++r) {
    const std::vector<Tangent>& result = tangents[forward.results[r].tensor.at()];
    const std::vector<Real>& same = reverse[training.graph.results[r].tensor.at()];
    if (result.size() != same.size()) return certain(concat("result ", r, " changed its shape"));
    for (size_t e = 0; e < result.size(); ++e) {
      const double value = result[e].value.value;
      if (!std::isfinite(value)) return certain(concat("result ", r, " is ", value));
      if (value != same[e].value) {  // equal bits, except for the sign of zero: the absolute value of -0 may be -0
        return certain(differ(concat("result ", r, " of the graph"), value, "of the training graph", same[e].value, 0));
      }
      objective.add(inputs.result_gradients[r][e], result[e].value);
      by_tangent.add(inputs.result_gradients[r][e], result[e].tangent);
    }
  }
  InnerProduct by_gradient;  // <Jᵀ u, v>
  for (size_t i = 0; i < forward.arguments.size(); ++i) {
    const Tensor& argument = forward.tensor(forward.arguments[i]);
    if (argument.role != TensorRole::argument || argument.fixed) continue;
    const TensorId id = training.argument_gradients[i];
    const std::string& name = forward.tensor(forward.arguments[i]).name;
    if (!id.valid()) return certain(concat("argument ", name, " has no gradient"));
    const std::vector<Real>& gradient = reverse[id.at()];
    if (gradient.size() != inputs.direction[i].size())
      return certain(concat("the gradient of ", name, " has another shape"));
    for (size_t e = 0; e < gradient.size(); ++e) {
      if (!std::isfinite(gradient[e].value)) return certain(concat("a gradient of ", name, " is ", gradient[e].value));
      by_gradient.add(gradient[e], inputs.direction[i][e]);
    }
  }

  Findings findings;
  const double tolerance = by_tangent.sum.error + by_gradient.sum.error;
  const double magnitude = std::max(by_tangent.magnitude, by_gradient.magnitude);
  findings.looseness = tolerance > 0 ? tolerance / magnitude : 0;
  if (!(std::abs(by_tangent.sum.value - by_gradient.sum.value) <= tolerance)) {
    findings.complaint = differ("forward mode", by_tangent.sum.value, "reverse mode", by_gradient.sum.value, tolerance);
    if (has_undecided_branch(forward, tangents)) findings.weight = Weight::undecided;
    return findings;
  }
  findings.complaint = check_differences(forward, inputs, objective.sum, by_gradient.sum);
  findings.weight = findings.complaint ? Weight::kink : Weight::certain;
  return findings;
}

}  // namespace

Verdict check_training(const Graph& forward, const TrainingGraph& training, uint64_t seed) {
  constexpr uint64_t kDraws = 3;
  Verdict verdict;
  verdict.operators = forward.operators.size();
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    const Findings findings = examine(forward, training, draw_inputs(forward, seed + (draw << 56)));
    verdict.looseness = findings.looseness;
    verdict.complaint = findings.complaint;
    if (findings.weight == Weight::certain) break;
    if (findings.weight == Weight::undecided) {
      verdict.complaint.reset();
      verdict.looseness = std::numeric_limits<double>::infinity();  // stays unless another draw is checked
    }
  }
  return verdict;
}

Verdict check_program(const std::string& text, uint64_t seed) {
  const Result<Graph> forward = parse_program(text, {});
  if (!forward) return {to_string(forward.error())};
  if (const Result<Done> valid = verify(*forward); !valid) return {to_string(valid.error())};
  const TrainingGraph training = differentiate(*forward);
  if (const Result<Done> valid = verify(training); !valid) return {to_string(valid.error())};
  Verdict verdict = check_training(*forward, training, seed);
  if (!verdict.complaint) verdict.complaint = check_fusion(training, seed);
  return verdict;
}

}  // namespace millrace::random_programs
