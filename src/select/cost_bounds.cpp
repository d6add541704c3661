#include "select/cost_bounds.h"

#include <map>

#include "base/clock.h"
#include "select/dual.h"
#include "select/problem.h"

namespace millrace {
namespace {

constexpr double kWorthwhileRise = 1e-4;

// For each combination of layouts: the least that the rest of a selection costs, without the candidate that has them.
std::map<std::vector<int>, double> least_besides(const ProblemPartition& partition, const std::vector<double>& with) {
  std::map<std::vector<int>, double> least;
  for (size_t k = 0; k < partition.candidates.size(); ++k)
    least[partition.candidates[k].layouts] = with[k] - partition.candidates[k].seconds;
  return least;
}

void add_candidates(const MeasuredPartition& measured, const std::map<std::vector<int>, double>& least,
                    std::vector<double>& with) {
  for (size_t k = 0; k < measured.candidates.size(); ++k) {
    const auto found = least.find(measured.candidates[k].layouts);
    if (found != least.end()) with[k] = found->second + measured.candidates[k].seconds;
  }
}

}  // namespace

CostBounds cost_bounds(const Measurements& measurements, double seconds) {
  const double until = now() + seconds;
  CostBounds bounds;
  for (const MeasuredPartition& partition : measurements.partitions)
    bounds.with.emplace_back(partition.candidates.size(), kInfinity);
  const Result<Problem> problem = make_problem(measurements);
  if (!problem) {
    bounds.all = kInfinity;
    return bounds;
  }
  DualBound dual(*problem);
  dual.improve(kWorthwhileRise, until);
  bounds.all = dual.bound();
  if (bounds.all == kInfinity) return bounds;  // nothing fits together
  for (size_t p = 0; p < problem->partitions.size(); ++p)
    add_candidates(measurements.partitions[p], least_besides(problem->partitions[p], dual.bounds_with(p)),
                   bounds.with[p]);
  return bounds;
}

}  // namespace millrace
