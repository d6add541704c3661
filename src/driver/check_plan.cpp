#include "driver/check_plan.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "driver/callers_tensors.h"
#include "driver/given_tensors.h"
#include "measure/reference_data.h"
#include "reference/bounded.h"
#include "reference/decisions.h"
#include "reference/interpreter.h"

namespace millrace {
namespace {

constexpr uint64_t kSeed = 7;
constexpr uint32_t kStep = 3;
// Passes over the program in float64: one exact, and one bounded that takes four times as long.
constexpr double kPasses = 5;
constexpr double kFloat64 = 1e-10;
constexpr double kMostDraws = 16;
constexpr double kMostDrawsInAll = 8 * kMostDraws;
constexpr size_t kFewestDecided = 4;

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double x : values) most = std::isfinite(x) ? std::max(most, std::abs(x)) : most;
  return most;
}

// Whether the expected value is beyond the finite numbers of the storage type, and the stored value is what the type
// has instead.
bool is_same_non_finite(DType dtype, double wanted, double found) {
  const double stored = rounded_to(dtype, wanted);
  return std::isnan(stored) ? std::isnan(found) : std::isinf(stored) && found == stored;
}

// Where the unfused program overflows, an equivalent one may too.
double squared_distance(DType dtype, const std::vector<double>& wanted, const std::vector<double>& unfused,
                        const std::vector<double>& found) {
  double sum = 0;
  for (size_t k = 0; k < wanted.size(); ++k) {
    const bool same = wanted[k] == found[k] || is_same_non_finite(dtype, wanted[k], found[k]) ||
                      (!std::isfinite(unfused[k]) && !std::isfinite(found[k]));
    sum += same ? 0 : (wanted[k] - found[k]) * (wanted[k] - found[k]);
  }
  return sum;
}

template <class Scalar>
Values<Scalar> as(const Values<double>& given) {
  Values<Scalar> values(given.size());
  for (size_t k = 0; k < given.size(); ++k) {
    for (const double x : given[k]) values[k].emplace_back(x);
  }
  return values;
}

// The error of every output, as a fraction of the tolerance, over several draws of the inputs.
class OutputErrors {
 public:
  OutputErrors(const Graph& graph, const std::vector<Made>& outputs)
      : graph_(graph), outputs_(outputs), decisions_(graph) {
    for (const Tensor& tensor : graph.tensors) {
      const bool stored = tensor.role != TensorRole::constant && tensor.role != TensorRole::scalar;
      half_ = half_ || tensor.dtype == DType::float16 || tensor.dtype == DType::bfloat16;
      single_ = single_ || (stored && tensor.dtype == DType::float32);
    }
    sums_.resize(outputs.size());
    decided_sums_.resize(outputs.size());
    finite_.resize(outputs.size());
  }

  // Errors of half precisions are random: one draw of a few elements says little.
  bool by_chance() const { return half_; }

  Result<Done> add(const Values<double>& given, const RandomState& random, const Values<double>& found) {
    if (half_) return add_rounded(given, random, found);
    return single_ ? add_bounded<24>(given, random, found) : add_bounded<53>(given, random, found);
  }

  // The number of draws in which rounding changes no comparison, ReLU or maximum.
  size_t decided() const { return decided_; }

  // Whether the reference has a finite element of the output: if not, the check says little.
  bool has_finite(size_t output) const { return finite_[output] > 0; }

  // Uses the decided draws if there are enough. If not, the program has so many elements that few of them jump.
  double fraction(size_t output) const {
    if (!std::isfinite(sums_[output].found)) return sums_[output].found;
    const Sums& sums = decided_ >= kFewestDecided ? decided_sums_[output] : sums_[output];
    return half_ ? std::sqrt(sums.found) / (2 * std::sqrt(sums.unfused) + std::sqrt(sums.storage)) : sums.worst;
  }

 private:
  struct Sums {
    double worst = 0;    // the worst element's error, as a fraction
    double found = 0;    // squared distances from the exact values: of the plan,
    double unfused = 0;  // of the unfused program,
    double storage = 0;  // and the squared error of storing the result

    void add(const Sums& other) {
      found += other.found;
      unfused += other.unfused;
      storage += other.storage;
    }
  };

  Result<Done> add_rounded(const Values<double>& given, const RandomState& random, const Values<double>& found) {
    Values<double> exact = given;
    Values<double> rounded = given;
    if (Result<Done> ran = interpret(graph_, exact, random); !ran) return ran;
    if (Result<Done> ran = interpret_rounded(graph_, rounded, random); !ran) return ran;
    const Result<bool> clear = decisions_.are_clear(exact, rounded);
    if (!clear) return clear.error();
    decided_ += *clear ? 1 : 0;
    for (size_t k = 0; k < outputs_.size(); ++k) {
      const size_t tensor = outputs_[k].tensor.at();
      const DType dtype = graph_.tensors[tensor].dtype;
      const double storage = storage_error(dtype, largest(exact[tensor]));
      const Sums draw{0, squared_distance(dtype, exact[tensor], rounded[tensor], found[tensor]),
                      squared_distance(dtype, exact[tensor], rounded[tensor], rounded[tensor]), storage * storage};
      for (const double x : exact[tensor]) finite_[k] += std::isfinite(x) ? 1 : 0;
      sums_[k].add(draw);
      if (*clear) decided_sums_[k].add(draw);
    }
    return Done{};
  }

  template <int kDigits>
  Result<Done> add_bounded(const Values<double>& given, const RandomState& random, const Values<double>& found) {
    Values<Bounded<kDigits>> bounded = as<Bounded<kDigits>>(given);
    if (Result<Done> ran = interpret(graph_, bounded, random); !ran) return ran;
    for (size_t k = 0; k < outputs_.size(); ++k) {
      const size_t tensor = outputs_[k].tensor.at();
      const DType dtype = graph_.tensors[tensor].dtype;
      double most = 0;
      for (const Bounded<kDigits>& x : bounded[tensor])
        most = std::isfinite(x.value) ? std::max(most, std::abs(x.value)) : most;
      for (size_t element = 0; element < found[tensor].size(); ++element) {
        const Bounded<kDigits>& wanted = bounded[tensor][element];
        // In float64, a gradient that is zero up to rounding has no relative error: the bound is the tolerance.
        const double relative = kDigits == 53 ? kFloat64 * most : 0;
        const double allowed = std::max(relative, wanted.error) + storage_error(dtype, wanted.value);
        const double value = found[tensor][element];
        const bool same = value == wanted.value || is_same_non_finite(dtype, wanted.value, value);
        const double difference = same ? 0 : std::abs(value - wanted.value) / allowed;
        finite_[k] += std::isfinite(wanted.value) ? 1 : 0;
        // A NaN is worse than any number, and stays.
        if (!std::isnan(sums_[k].worst) && !(difference <= sums_[k].worst)) sums_[k].worst = difference;
      }
    }
    return Done{};
  }

  const Graph& graph_;
  const std::vector<Made>& outputs_;
  Decisions decisions_;
  std::vector<Sums> sums_;
  std::vector<Sums> decided_sums_;
  std::vector<size_t> finite_;  // elements of the reference
  size_t decided_ = 0;
  bool half_ = false;
  bool single_ = false;
};

}  // namespace

Result<PlanCheck> check_plan(const LoadedPlan& loaded, PlanSession& session, double most_seconds,
                             const std::string& examples) {
  const Graph& graph = loaded.training.graph;
  PlanCheck check;
  check.seconds = kPasses * reference_seconds(graph);
  check.limit = most_seconds;
  if (check.seconds > most_seconds) return check;
  const std::vector<Made> outputs = made_tensors(loaded.training);
  OutputErrors error(graph, outputs);
  const double draws =
      error.by_chance() ? std::clamp(most_seconds / std::max(check.seconds, 1e-9), 1.0, kMostDrawsInAll) : 1;
  for (uint64_t draw = 0; draw < static_cast<uint64_t>(draws); ++draw) {
    if (static_cast<double>(draw) >= kMostDraws && error.decided() >= kFewestDecided) break;
    const uint64_t seed = kSeed + draw;
    Result<Values<double>> taken_in = take_given(loaded.training, examples, seed);
    if (!taken_in) return taken_in.error();
    Values<double>& given = *taken_in;
    for (size_t k = 0; k < given.size(); ++k) {
      if (graph.tensors[k].role == TensorRole::scalar) continue;
      for (double& x : given[k]) x = rounded_to(graph.tensors[k].dtype, x);
    }
    if (Result<Done> put = session.put(given); !put) return put.error();
    if (Result<Done> bound = session.bind(seed, kStep); !bound) return bound.error();
    if (Result<Done> ran = session.step(); !ran) return ran.error();
    Values<double> found(graph.tensors.size());
    if (Result<Done> taken = session.take(found); !taken) return taken.error();
    if (Result<Done> added = error.add(given, {seed, kStep}, found); !added) return added.error();
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    const double fraction = error.fraction(k);
    if (!(fraction <= 1)) {
      return Error::make(ErrorKind::failed,
                         concat("the plan's '", outputs[k].name, "' differs from the reference: ", fraction,
                                " times as much as rounding explains"),
                         "this is a bug in Millrace: please report it with the program");
    }
    if (!error.has_finite(k)) check.not_finite.push_back(outputs[k].name);
    if (fraction > check.worst) {
      check.worst = fraction;
      check.tensor = outputs[k].name;
    }
  }
  check.checked = true;
  return check;
}

}  // namespace millrace
