#include "select/cost_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/sanitized.h"
#include "select/brute_force.h"
#include "select/random_measurements.h"

namespace millrace {
namespace {

constexpr auto kProblems = static_cast<unsigned>(tried_of(3000));
constexpr double kLongEnough = 600;  // seconds
constexpr double kRounding = 1e-9;

// The selections with a given candidate.
Measurements only_with(Measurements measurements, size_t partition, size_t candidate) {
  std::vector<MeasuredCandidate>& candidates = measurements.partitions[partition].candidates;
  candidates = {candidates[candidate]};
  for (MeasuredChoicePoint& choice_point : measurements.choice_points) {
    std::vector<std::vector<int>> with;
    bool here = false;
    for (const std::vector<int>& alternative : choice_point.alternatives) {
      const bool has = std::count(alternative.begin(), alternative.end(), static_cast<int>(partition)) > 0;
      if (has) with.push_back(alternative);
      here |= has;
    }
    if (here) choice_point.alternatives = with;
  }
  return measurements;
}

TEST(CostBounds, NoSelectionWithACandidateCostsLess) {
  int above_all = 0;
  for (unsigned seed = 0; seed < kProblems / 10; ++seed) {
    SCOPED_TRACE(seed);
    const Measurements measurements = random_measurements(seed);
    const CostBounds bounds = cost_bounds(measurements, kLongEnough);
    const double best = BruteForce(measurements).cost();
    ASSERT_LE(bounds.all, best + kRounding);
    for (size_t p = 0; p < measurements.partitions.size(); ++p) {
      for (size_t k = 0; k < measurements.partitions[p].candidates.size(); ++k) {
        ASSERT_LE(bounds.with[p][k], BruteForce(only_with(measurements, p, k)).cost() + kRounding);
        ASSERT_GE(bounds.with[p][k], bounds.all - kRounding);
        above_all += bounds.with[p][k] > bounds.all + kRounding ? 1 : 0;
      }
    }
  }
  EXPECT_GT(above_all, 0);
}

// A problem with the true time of every candidate, and which candidates are tried. For the others only a lower bound is
// known.
struct PartlyTried {
  Measurements truth;
  Measurements tried;
  Measurements bounded;
};

PartlyTried partly_tried(unsigned seed) {
  std::mt19937 random(seed);
  PartlyTried made{random_measurements(seed), {}, {}};
  made.tried = made.bounded = made.truth;
  for (size_t p = 0; p < made.truth.partitions.size(); ++p) {
    std::vector<MeasuredCandidate>& tried = made.tried.partitions[p].candidates;
    tried.clear();
    for (MeasuredCandidate& candidate : made.bounded.partitions[p].candidates) {
      if (random() % 3 != 0)
        tried.push_back(candidate);
      else
        candidate.seconds *= static_cast<double>(random() % 1001) * 1e-3;
    }
  }
  made.tried.conversions.clear();
  for (MeasuredConversion& conversion : made.bounded.conversions) {
    if (random() % 3 != 0)
      made.tried.conversions.push_back(conversion);
    else
      conversion.seconds *= static_cast<double>(random() % 1001) * 1e-3;
  }
  return made;
}

// A candidate without room for a cheaper selection need not be tried: no cheaper selection contains it.
TEST(CostBounds, ACandidateWithoutRoomIsInNoCheaperSelection) {
  int certified = 0;
  int without_room = 0;
  for (unsigned seed = 0; seed < kProblems / 2; ++seed) {
    SCOPED_TRACE(seed);
    PartlyTried problem = partly_tried(seed);
    const double incumbent = BruteForce(problem.tried).cost();
    if (!std::isfinite(incumbent)) continue;
    const CostBounds bounds = cost_bounds(problem.bounded, kLongEnough);
    const double best = BruteForce(problem.truth).cost();
    if (bounds.all >= incumbent - kRounding) {
      ++certified;
      ASSERT_GE(best, incumbent - 2 * kRounding);
    }
    Measurements with_room = problem.truth;
    for (size_t p = 0; p < with_room.partitions.size(); ++p) {
      size_t k = 0;
      without_room += static_cast<int>(std::erase_if(with_room.partitions[p].candidates,
                                                     [&](const auto&) { return bounds.with[p][k++] >= incumbent; }));
    }
    ASSERT_NEAR(std::min(BruteForce(with_room).cost(), incumbent), std::min(best, incumbent), kRounding);
  }
  if (kSanitized) return;  // too few to count
  EXPECT_GT(certified, 100);
  EXPECT_GT(without_room, 500);
}

}  // namespace
}  // namespace millrace
