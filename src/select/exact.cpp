#include "select/exact.h"

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "base/text.h"
#include "select/conversions.h"
#include "select/dual.h"
#include "select/eliminator.h"
#include "select/price.h"

namespace millrace {
namespace {

constexpr size_t kNarrowBeam = 32;
constexpr size_t kRoughBeam = 512;
constexpr size_t kWider = 16;
constexpr size_t kWidestBeam = 2'097'152;
constexpr double kFirstRise = 1e-3;
constexpr double kRise = 1e-4;
constexpr double kFirstMargin = 1e-2;  // of the bound
constexpr double kGrowth = 2;
constexpr double kEqual = 1e-10;  // relative
// Shares of the time.
constexpr double kFirstBound = 0.5;
constexpr double kFirstSelection = 0.6;

Error nothing_fits(const Measurements& measurements, const std::vector<size_t>& stuck) {
  std::vector<std::string> names;
  for (const size_t tensor : stuck) names.push_back(concat("'", measurements.tensors[tensor].name, "'"));
  return Error::make(ErrorKind::no_configuration,
                     concat("the layouts of tensor", names.size() == 1 ? " " : "s ", join(names, ", "),
                            " cannot be reconciled: no choice of candidates and conversions serves all partitions"),
                     "measure more candidates of the partitions that touch them, or more conversions of them");
}

Error too_large() {
  return Error::make(ErrorKind::no_configuration, "the search found no selection before it grew too large",
                     "measure fewer candidates, or more conversions");
}

// Searches with a narrow beam, then with wider ones. Nothing that costs more than the best selection so far is
// considered. A search that drops nothing because of its beam proves that the best selection is the optimum.
class Search {
 public:
  Search(const Measurements& measurements, double seconds)
      : measurements_(measurements), seconds_(seconds), cheapest_(cheapest_conversions(measurements)) {}

  Result<Selection> run(const Restriction& restriction, size_t widest) {
    const Result<Problem> problem = make_problem(measurements_, cheapest_, restriction);
    if (!problem) return problem.error();
    return run(*problem, widest);
  }

 private:
  Result<Selection> run(const Problem& problem, size_t widest) {
    const DualBound flat(problem);
    if (flat.bound() == kInfinity) return nothing_fits(measurements_, flat.stuck());
    Eliminator reducer(problem, flat, {});
    if (!reducer.reduce()) return nothing_fits(measurements_, reducer.stuck());
    const Condensed rest = reducer.condensed();
    DualBound dual(rest.problem);
    dual.improve(kFirstRise, at(kFirstBound));
    lower_bound_ = dual.bound();
    if (lower_bound_ == kInfinity) return nothing_fits(measurements_, dual.stuck());
    while (goes_on(widest)) {
      const EliminationLimits limits = limits_now();
      take(reducer.expanded(rest, Eliminator(rest.problem, dual, limits).run()), limits);
      if (goes_on(widest)) dual.improve(kRise, at(1));
      lower_bound_ = std::max(lower_bound_, dual.bound());
    }
    if (!best_) return stuck_.empty() ? too_large() : nothing_fits(measurements_, stuck_);
    return finished();
  }

  double at(double share) const { return start_ + share * seconds_; }

  bool is_optimal() const { return best_ && lower_bound_ >= best_->cost * (1 - kEqual); }

  // Until there is a selection, the search goes on.
  bool goes_on(size_t widest) const {
    if (ended_ || beam_ > kWidestBeam) return false;
    return !best_ || (beam_ <= widest && now() < at(1) && !is_optimal());
  }

  EliminationLimits limits_now() const {
    EliminationLimits limits;
    limits.beam = beam_;
    limits.rise = best_ ? kRise : kFirstRise;
    limits.bounds_until = at(best_ ? 1 : kFirstSelection);
    if (!best_) return limits;
    limits.cost = best_->cost * (1 - kEqual);
    if (beam_ > kRoughBeam) limits.cost = std::min(limits.cost, lower_bound_ * (1 + margin_));
    limits.deadline = at(1);
    return limits;
  }

  void take(const Elimination& found, const EliminationLimits& limits) {
    if (found.end == Elimination::End::solved) {
      std::optional<Selection> selection = priced(measurements_, found.alternatives, found.candidates, cheapest_);
      if (selection && (!best_ || selection->cost < best_->cost)) best_ = std::move(selection);
    }
    lower_bound_ = std::max(lower_bound_, std::min(found.lower_bound, limits.cost));
    ended_ = found.end == Elimination::End::cut;
    if (found.dropped_by_beam) {
      if (beam_ > kRoughBeam) margin_ *= kGrowth;
      beam_ *= kWider;
    } else if (found.end == Elimination::End::solved) {
      lower_bound_ = best_->cost;
    } else if (found.end == Elimination::End::nothing) {
      lower_bound_ = std::max(lower_bound_, limits.cost);
      stuck_ = found.stuck;
      ended_ |= !best_;
      margin_ *= kGrowth;
    }
  }

  Selection finished() {
    best_->proven = is_optimal();
    best_->lower_bound = best_->proven ? best_->cost : std::max(best_->bound, lower_bound_);
    return *std::move(best_);
  }

  const Measurements& measurements_;
  const double start_ = now();
  const double seconds_;
  const std::vector<CheapestConversions> cheapest_;
  std::optional<Selection> best_;
  double lower_bound_ = 0;
  size_t beam_ = kNarrowBeam;
  double margin_ = kFirstMargin;
  bool ended_ = false;
  std::vector<size_t> stuck_;  // where nothing fits
};

Result<Selection> search(const Measurements& measurements, const SelectLimits& limits, const Restriction& restriction,
                         size_t widest) {
  return Search(measurements, limits.seconds).run(restriction, widest);
}

}  // namespace

Result<Selection> select_exact(const Measurements& measurements, const SelectLimits& limits,
                               const Restriction& restriction) {
  return search(measurements, limits, restriction, kWidestBeam);
}

Result<Selection> select_roughly(const Measurements& measurements, const SelectLimits& limits) {
  return search(measurements, limits, {}, kRoughBeam);
}

}  // namespace millrace
