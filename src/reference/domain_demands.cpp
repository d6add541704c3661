#include "reference/domain_demands.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr double kPositive = 0.25;  // at least, where a number must be positive
constexpr double kAny = 1e300;
constexpr double kShareOfExponent = 0.25;  // of the type's largest exponent: products with gradients are finite, too

bool is_bound(double x) { return std::abs(x) < kAny; }

// The largest magnitude of an exponential's argument.
double most_exponent(DType dtype) {
  switch (dtype) {
    case DType::float16: return kShareOfExponent * std::log(65504.0);
    case DType::float64: return kShareOfExponent * std::log(1.7e308);
    default: return kShareOfExponent * std::log(3.4e38);
  }
}

class DemandFinder {
 public:
  DemandFinder(const Graph& graph, const std::vector<Samples>& samples)
      : graph_(graph), demands_(graph.tensors.size()) {
    for (const Samples& each : samples) known_.push_back(statistics_of(each));
  }

  std::vector<Demand> run() {
    for (const Operator& op : graph_.operators) {
      if (op.pass == Pass::forward) look_at(op);
    }
    for (size_t k = graph_.operators.size(); k-- > 0;) {
      const Demand wanted = demands_[graph_.operators[k].outputs[0].tensor.at()];
      if (is_bound(wanted.low) || is_bound(wanted.high)) hand_down(graph_.operators[k], wanted);
    }
    return demands_;
  }

 private:
  const SampleStatistics& of(const Access& access) const { return known_[access.tensor.at()]; }
  bool is_constant(const Access& access) const { return graph_.tensor(access.tensor).role == TensorRole::constant; }

  // --- The operators that have a domain ---

  void look_at(const Operator& op) {
    switch (op.kind) {
      case OperatorKind::log:
      case OperatorKind::sqrt: return want_positive(op.inputs[0]);
      case OperatorKind::power:
        if (op.value != std::floor(op.value)) return want_positive(op.inputs[0]);
        return op.value < 0 ? want_one_sign(op.inputs[0]) : void();
      case OperatorKind::divide: return want_one_sign(op.inputs[1]);
      case OperatorKind::log1p:
        if (of(op.inputs[0]).least <= -1) want(op.inputs[0], {kPositive - 1, kAny});
        return;
      case OperatorKind::exp:
      case OperatorKind::expm1: {
        const double most = most_exponent(graph_.tensor(op.outputs[0].tensor).dtype);
        return want(op.inputs[0], {-most, most});
      }
      default: return;
    }
  }

  void want_positive(const Access& access) {
    if (of(access).least <= 0) want(access, {kPositive, kAny});
  }
  // A divisor may be negative.
  void want_one_sign(const Access& access) {
    if (of(access).most >= 0) want_positive(access);
  }

  // Applied only if the samples are not as wanted.
  void want(const Access& access, const Demand& wanted) {
    if (of(access).least >= wanted.low && of(access).most <= wanted.high) return;
    Demand& known = demands_[access.tensor.at()];
    known = {std::max(known.low, wanted.low), std::min(known.high, wanted.high)};
  }

  // --- What an output's demand means for the inputs ---

  void hand_down(const Operator& op, const Demand& wanted) {
    switch (op.kind) {
      case OperatorKind::copy:
      case OperatorKind::join:
      case OperatorKind::max:
      case OperatorKind::min:
      case OperatorKind::maximum:
      case OperatorKind::minimum:
      case OperatorKind::relu:
      case OperatorKind::absolute:
      case OperatorKind::causal_mask:
      case OperatorKind::log_sum_exp:
        for (const Access& input : op.inputs) want(input, wanted);
        return;
      case OperatorKind::gather: return want(op.inputs[0], wanted);
      case OperatorKind::where:
        for (const size_t input : {size_t{1}, size_t{2}}) want(op.inputs[input], wanted);
        return;
      case OperatorKind::negate: return want(op.inputs[0], negated(wanted));
      case OperatorKind::add: return hand_to_sum(op, wanted);
      case OperatorKind::subtract: return hand_to_difference(op, wanted);
      case OperatorKind::multiply: return hand_to_product(op, wanted, 1);
      case OperatorKind::divide: return hand_to_quotient(op, wanted);
      case OperatorKind::contraction: return hand_to_product(op, wanted, reduced_points(graph_, op));
      case OperatorKind::sum: return want(op.inputs[0], divided(wanted, reduced_points(graph_, op)));
      case OperatorKind::exp: return want(op.inputs[0], through(wanted, [](double y) { return std::log(y); }));
      case OperatorKind::log: return want(op.inputs[0], through(wanted, [](double y) { return std::exp(y); }));
      case OperatorKind::sqrt: return want(op.inputs[0], through(wanted, [](double y) { return y * y; }));
      case OperatorKind::power: return hand_to_power(op, wanted);
      case OperatorKind::tanh:
      case OperatorKind::erf:
      case OperatorKind::sin:
      case OperatorKind::gelu:
      case OperatorKind::gelu_tanh:
      case OperatorKind::silu:  // at least half of a positive argument, or half of it up to one
        if (wanted.low > 0) want(op.inputs[0], {2 * wanted.low, kAny});
        return;
      default: return;  // positive anyway, or of a size that does not depend on the arguments
    }
  }

  static Demand negated(const Demand& demand) { return {-demand.high, -demand.low}; }
  static Demand divided(const Demand& demand, double by) {
    const double size = std::abs(by);
    const Demand made = {is_bound(demand.low) ? demand.low / size : demand.low,
                         is_bound(demand.high) ? demand.high / size : demand.high};
    return by > 0 ? made : negated(made);
  }
  template <class Inverse>
  static Demand through(const Demand& demand, const Inverse& inverse) {
    return {demand.low > 0 ? inverse(demand.low) : -kAny,
            demand.high > 0 && is_bound(demand.high) ? inverse(demand.high) : kAny};
  }
  static Demand shifted(const Demand& demand, double low, double high) {
    return {is_bound(demand.low) ? demand.low + low : demand.low,
            is_bound(demand.high) ? demand.high + high : demand.high};
  }

  void hand_to_sum(const Operator& op, const Demand& wanted) {
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const Access& other = op.inputs[1 - side];
      want(op.inputs[side],
           is_constant(other) ? shifted(wanted, -of(other).least, -of(other).most) : divided(wanted, 2));
    }
  }

  // a - b is a + (-b).
  void hand_to_difference(const Operator& op, const Demand& wanted) {
    const Access& a = op.inputs[0];
    const Access& b = op.inputs[1];
    want(a, is_constant(b) ? shifted(wanted, of(b).least, of(b).most) : divided(wanted, 2));
    want(b, negated(is_constant(a) ? shifted(wanted, -of(a).least, -of(a).most) : divided(wanted, 2)));
  }

  // A positive product has positive factors. If `terms` products are summed without a demand on the sign, about half of
  // them cancel the other half.
  void hand_to_product(const Operator& op, const Demand& wanted, double terms) {
    double factor = 1;
    std::vector<const Access*> factors;
    for (const Access& input : op.inputs) {
      if (is_constant(input))
        factor *= of(input).mean;
      else
        factors.push_back(&input);
    }
    if (factor == 0) return;
    const Demand rest = divided(wanted, factor);
    const auto share = [&](double bound, double count) {
      return std::pow(std::abs(bound) / count, 1 / static_cast<double>(factors.size()));
    };
    for (const Access* each : factors) {
      const bool alone = factors.size() == 1 && terms == 1;
      const double most = is_bound(rest.high) ? share(rest.high, rest.low > 0 ? terms : std::sqrt(terms)) : kAny;
      want(*each, alone ? rest : Demand{rest.low > 0 ? share(rest.low, terms) : -most, most});
    }
  }

  void hand_to_quotient(const Operator& op, const Demand& wanted) {
    const Access& divisor = op.inputs[1];
    if (is_constant(divisor)) return want(op.inputs[0], divided(wanted, 1 / of(divisor).mean));
    const double largest = std::max(std::abs(of(divisor).least), std::abs(of(divisor).most));
    const double least = std::max(kPositive, of(divisor).least);
    want(op.inputs[0], {is_bound(wanted.low) ? wanted.low * (wanted.low > 0 ? largest : least) : -kAny,
                        is_bound(wanted.high) ? wanted.high * least : kAny});
  }

  void hand_to_power(const Operator& op, const Demand& wanted) {
    const auto root = [&](double y) { return std::pow(y, 1 / op.value); };
    const Demand found = through(wanted, root);
    want(op.inputs[0],
         op.value > 0 ? found
                      : Demand{is_bound(found.high) ? found.high : kPositive, is_bound(found.low) ? found.low : kAny});
  }

  const Graph& graph_;
  std::vector<SampleStatistics> known_;
  std::vector<Demand> demands_;
};

}  // namespace

std::vector<Demand> domain_demands(const Graph& graph, const std::vector<Samples>& samples) {
  return DemandFinder(graph, samples).run();
}

}  // namespace millrace
