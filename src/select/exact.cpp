#include "select/exact.h"

#include <algorithm>

#include "base/text.h"
#include "select/dual.h"
#include "select/eliminate.h"
#include "select/price.h"

namespace millrace {
namespace {

constexpr double kFirstMargin = 4e-3;  // of the bound
constexpr double kGrowth = 1.4;
constexpr double kLastMargin = 1e3;  // beyond this, no margin at all
constexpr double kRounding = 1e-11;
constexpr size_t kBeam = 5'000;
constexpr size_t kNarrowBeam = 200;
constexpr size_t kWidestBeam = 100'000;

Error nothing_fits(const Measurements& measurements, const std::vector<size_t>& stuck) {
  std::vector<std::string> names;
  for (const size_t tensor : stuck) names.push_back(concat("'", measurements.tensors[tensor].name, "'"));
  return Error::make(ErrorKind::no_configuration,
                     concat("the layouts of tensor", names.size() == 1 ? " " : "s ", join(names, ", "),
                            " cannot be reconciled: no choice of candidates and conversions serves all partitions"),
                     "measure more candidates of the partitions that touch them, or more conversions of them");
}

// The best of a search that considers only the most promising combinations.
Result<Selection> select_by_beam(const Measurements& measurements, const Problem& problem, const DualBound& dual,
                                 size_t narrowest) {
  for (size_t beam = narrowest; beam <= kWidestBeam; beam *= 4) {
    EliminationLimits limits;
    limits.beam = beam;
    const Elimination found = eliminate(problem, dual, limits);
    if (found.end != Elimination::End::solved) continue;
    std::optional<Selection> selection = priced(measurements, found.alternatives, found.candidates);
    if (!selection) continue;
    selection->lower_bound = std::min(selection->cost, std::max(selection->bound, dual.bound()));
    return *std::move(selection);
  }
  return Error::make(ErrorKind::no_configuration, "the search found no selection before it grew too large",
                     "measure fewer candidates, or more conversions");
}

}  // namespace

// Searches for selections within a small margin above the bound, then within wider ones. The best of the first that are
// found is the optimum, and nothing outside the margin is ever considered.
Result<Selection> select_exact(const Measurements& measurements, const Restriction& restriction) {
  const Result<Problem> problem = make_problem(measurements, restriction);
  if (!problem) return problem.error();
  DualBound dual(*problem);
  dual.improve();
  const double bound = dual.bound();
  if (bound == kInfinity) return nothing_fits(measurements, dual.stuck());
  double margin = kFirstMargin;
  while (true) {
    EliminationLimits limits;
    limits.cost = margin > kLastMargin ? kInfinity : bound * (1 + margin);
    limits.cost += limits.cost * kRounding;
    const Elimination found = eliminate(*problem, dual, limits);
    switch (found.end) {
      case Elimination::End::blown: return select_by_beam(measurements, *problem, dual, kBeam);
      case Elimination::End::solved: {
        std::optional<Selection> selection = priced(measurements, found.alternatives, found.candidates);
        if (!selection) return nothing_fits(measurements, found.stuck);
        selection->lower_bound = selection->cost;
        selection->proven = true;
        return *std::move(selection);
      }
      case Elimination::End::nothing:
        if (found.complete) return nothing_fits(measurements, found.stuck);
        margin *= kGrowth;
    }
  }
}

Result<Selection> select_roughly(const Measurements& measurements, const SelectLimits&) {
  const Result<Problem> problem = make_problem(measurements, {});
  if (!problem) return problem.error();
  DualBound dual(*problem);
  dual.improve();
  return select_by_beam(measurements, *problem, dual, kNarrowBeam);
}

}  // namespace millrace
