#include "select/select.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/sanitized.h"
#include "measure/verify.h"
#include "select/brute_force.h"
#include "select/deep_measurements.h"
#include "select/dual.h"
#include "select/eliminator.h"
#include "select/layer_measurements.h"
#include "select/multiplied_measurements.h"
#include "select/problem.h"
#include "select/random_measurements.h"
#include "select/verify.h"

namespace millrace {
namespace {

constexpr auto kInstances = static_cast<unsigned>(tried_of(3000));
constexpr double kUnhurried = 600;  // seconds; enough on any machine

TEST(Select, EqualsBruteForceAndNeverLosesToTheShortestPath) {
  int fitting = 0;
  int not_default = 0;
  int converting = 0;
  int dearer_by_path = 0;
  for (unsigned seed = 0; seed < kInstances; ++seed) {
    SCOPED_TRACE(seed);
    const Measurements measurements = random_measurements(seed);
    if (const Result<Done> verified = verify(measurements); !verified) FAIL() << to_string(verified.error());
    const double best = BruteForce(measurements).cost();
    const Result<Selection> exact = select(measurements, SelectMethod::exact);
    const Result<Selection> path = select(measurements, SelectMethod::sssp);
    ASSERT_EQ(std::isfinite(best), static_cast<bool>(exact));
    ASSERT_EQ(std::isfinite(best), static_cast<bool>(path));
    if (!exact) {
      ASSERT_EQ(exact.error().kind, ErrorKind::no_configuration);
      ASSERT_NE(to_string(exact.error()).find('\''), std::string::npos)
          << "names nothing: " << to_string(exact.error());
      ASSERT_EQ(path.error().kind, ErrorKind::no_configuration);
      continue;
    }
    ASSERT_NEAR(exact->cost, best, 1e-9 * std::max(1.0, best));
    ASSERT_TRUE(exact->proven);
    ASSERT_GE(path->cost, best * (1 - 1e-9));
    for (const Result<Selection>* selection : {&exact, &path}) {
      if (const Result<Done> verified = verify(measurements, **selection); !verified)
        FAIL() << to_string(verified.error());
    }
    ++fitting;
    converting += exact->conversions.empty() ? 0 : 1;
    dearer_by_path += path->cost > best * (1 + 1e-9) ? 1 : 0;
    for (const int alternative : exact->alternatives) not_default += alternative > 0 ? 1 : 0;
  }
  if (kSanitized) return;  // too few to count
  // All kinds of instances occurred.
  EXPECT_GT(fitting, 2000);
  EXPECT_LT(fitting, 2900);
  EXPECT_GT(converting, 500);
  EXPECT_GT(dearer_by_path, 300);
  EXPECT_GT(not_default, 500);
}

// Where layouts do not meet, candidates become impossible while the bound rises; the bound must still hold.
TEST(Select, TheBoundOnlyRisesAndStaysBelowTheBest) {
  size_t higher = 0;
  for (unsigned seed = 0; seed < kInstances; ++seed) {
    const Measurements measurements = random_measurements(seed);
    const Result<Problem> problem = make_problem(measurements);
    if (!problem) continue;
    DualBound dual(*problem);
    const double first = dual.bound();
    dual.improve(1e-4, kInfinity);
    EXPECT_GE(dual.bound(), first - 1e-9) << "seed " << seed;
    EXPECT_LE(dual.bound(), BruteForce(measurements).cost() + 1e-9) << "seed " << seed;
    higher += dual.bound() > first + 1e-9 ? 1U : 0U;
  }
  EXPECT_GT(higher, kInstances / 4);
}

TEST(Select, NamesThePartitionWithoutAConfig) {
  Measurements measurements;
  measurements.tensors = {{"x", {"a"}}};
  measurements.partitions = {{"matmul", false, {}, {0}, {}}};
  measurements.choice_points = {{{{0}}}};
  for (const SelectMethod method : {SelectMethod::exact, SelectMethod::sssp}) {
    const Result<Selection> selection = select(measurements, method);
    ASSERT_FALSE(selection);
    EXPECT_EQ(selection.error().kind, ErrorKind::no_configuration);
    EXPECT_NE(to_string(selection.error()).find("partition 'matmul' has no candidate"), std::string::npos);
  }
}

// x is written as "a" or "b" and read as "c", and no conversion to "c" exists.
TEST(Select, NamesTheTensorWhoseLayoutsDoNotMeet) {
  Measurements measurements;
  measurements.tensors = {{"x", {"a", "b", "c"}}};
  measurements.partitions = {{"writer", false, {}, {0}, {{"0", {0}, 1}, {"1", {1}, 1}}},
                             {"reader", false, {0}, {}, {{"0", {2}, 1}}}};
  measurements.choice_points = {{{{0}}}, {{{1}}}};
  const Result<Selection> selection = select(measurements, SelectMethod::exact);
  ASSERT_FALSE(selection);
  EXPECT_EQ(selection.error().kind, ErrorKind::no_configuration);
  EXPECT_NE(to_string(selection.error()).find("tensor 'x'"), std::string::npos) << to_string(selection.error());
}

// One conversion serves all its readers: it pays off if it is paid once, and would not if every reader paid.
TEST(Select, PaysAConversionOnce) {
  Measurements measurements;
  measurements.tensors = {{"x", {"a", "b"}}};
  measurements.partitions = {{"writer", false, {}, {0}, {{"0", {0}, 1}}}};
  measurements.choice_points = {{{{0}}}};
  for (int k = 1; k <= 3; ++k) {
    measurements.partitions.push_back({"reader" + std::to_string(k), false, {0}, {}, {{"0", {0}, 2}, {"1", {1}, 1}}});
    measurements.choice_points.push_back({{{k}}});
  }
  measurements.conversions = {{0, 0, 1, 2.5}};
  const Result<Selection> selection = select(measurements, SelectMethod::exact);
  ASSERT_TRUE(selection);
  EXPECT_DOUBLE_EQ(selection->cost, 1 + 2.5 + 3);
  EXPECT_EQ(selection->conversions.size(), 1U);
  EXPECT_DOUBLE_EQ(selection->bound, 4);
}

// A step of a BERT layer's size; too large to try everything, so it is compared with the shortest path.
TEST(Select, OfALayersSizeIsProven) {
  const Measurements measurements = layer_measurements(0);
  if (const Result<Done> verified = verify(measurements); !verified) FAIL() << to_string(verified.error());
  const Result<Selection> exact = select(measurements, SelectMethod::exact, {kUnhurried});
  const Result<Selection> path = select(measurements, SelectMethod::sssp);
  ASSERT_TRUE(exact);
  ASSERT_TRUE(path);
  EXPECT_TRUE(exact->proven);
  EXPECT_LT(exact->cost, path->cost);
  for (const Result<Selection>* selection : {&exact, &path}) {
    if (const Result<Done> verified = verify(measurements, **selection); !verified)
      FAIL() << to_string(verified.error());
  }
}

// Without any time, the search still finds a selection, and what it says about the optimum is true.
TEST(Select, InterruptedIsValidWithATrueBound) {
  for (unsigned seed = 0; seed < kInstances; ++seed) {
    SCOPED_TRACE(seed);
    const Measurements measurements = random_measurements(seed);
    const double best = BruteForce(measurements).cost();
    for (const Result<Selection>& selection :
         {select(measurements, SelectMethod::exact, {0}), select_roughly(measurements, {0})}) {
      ASSERT_EQ(std::isfinite(best), static_cast<bool>(selection));
      if (!selection) continue;
      if (const Result<Done> verified = verify(measurements, *selection); !verified)
        FAIL() << to_string(verified.error());
      ASSERT_GE(selection->cost, best * (1 - 1e-9));
      ASSERT_LE(selection->lower_bound, best * (1 + 1e-9));
    }
  }
}

TEST(Select, OfManyLayersIsProven) {
  const Result<Selection> exact = select(deep_measurements(0), SelectMethod::exact, {kUnhurried});
  ASSERT_TRUE(exact);
  EXPECT_TRUE(exact->proven);
}

// The same with long skip connections: too hard to prove quickly.
TEST(Select, InterruptedOnManyLayersHasASmallProvenGap) {
  DeepOptions options;
  options.long_skips = 24;
  const Measurements measurements = deep_measurements(0, options);
  const Result<Selection> interrupted = select(measurements, SelectMethod::exact, {0});
  const Result<Selection> rough = select_roughly(measurements, {kUnhurried});
  for (const Result<Selection>* selection : {&interrupted, &rough}) {
    ASSERT_TRUE(*selection);
    EXPECT_FALSE((*selection)->proven);
    if (const Result<Done> verified = verify(measurements, **selection); !verified)
      FAIL() << to_string(verified.error());
  }
  EXPECT_LE(interrupted->lower_bound, rough->cost);
  EXPECT_LE(rough->lower_bound, interrupted->cost);
  EXPECT_LE(rough->cost, interrupted->cost);
  EXPECT_LT(rough->proven_gap(), 0.03);
}

TEST(Select, OfALongChainIsProven) {
  const Measurements measurements = chain_measurements(0, 2000);
  const Result<Selection> exact = select(measurements, SelectMethod::exact, {kUnhurried});
  ASSERT_TRUE(exact);
  EXPECT_TRUE(exact->proven);
  if (const Result<Done> verified = verify(measurements, *exact); !verified) FAIL() << to_string(verified.error());
}

// The alternatives of a multiplied choice point share most partitions. The first search must not make a row for every
// candidate and alternative.
TEST(Select, TheFirstSearchOfManyAlternativesMakesFewRows) {
  const Measurements measurements = multiplied_measurements(0);
  if (const Result<Done> verified = verify(measurements); !verified) FAIL() << to_string(verified.error());
  const Result<Problem> problem = make_problem(measurements);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->choice_points[0].size(), 65U);
  size_t candidates = 0;
  size_t in_alternatives = 0;
  for (const ProblemPartition& partition : problem->partitions) {
    candidates += partition.candidates.size();
    in_alternatives +=
        partition.candidates.size() * static_cast<size_t>(std::count(partition.in.begin(), partition.in.end(), true));
  }
  EXPECT_GT(in_alternatives, 25 * candidates);
  DualBound dual(*problem);
  dual.improve(1e-3, kInfinity);
  EliminationLimits limits;
  limits.beam = 32;
  const Elimination found = Eliminator(*problem, dual, limits).run();
  EXPECT_EQ(found.end, Elimination::End::solved);
  EXPECT_LT(found.rows, 8 * candidates);
}

TEST(Select, AnEliminationThatIsLateEndsAtItsFirstTable) {
  const Result<Problem> problem = make_problem(multiplied_measurements(0));
  ASSERT_TRUE(problem);
  const DualBound dual(*problem);
  EliminationLimits limits;
  limits.deadline = 0;
  const Elimination found = Eliminator(*problem, dual, limits).run();
  EXPECT_EQ(found.end, Elimination::End::cut);
  EXPECT_LE(found.rows, problem->partitions[0].candidates.size() * problem->choice_points[0].size());
}

// More alternatives than the first search looks at, of which many do not fit together.
TEST(Select, OfManyAlternativesEqualsBruteForce) {
  MultipliedOptions options;
  options.stages = 4;
  options.layouts = 3;
  options.candidates = 2;
  options.converted = 0.4;
  int fitting = 0;
  for (unsigned seed = 0; seed < tried_of(100); ++seed) {
    SCOPED_TRACE(seed);
    options.most_seconds = seed % 2 == 0 ? 0.2 : 2;
    const Measurements measurements = multiplied_measurements(seed, options);
    const double best = BruteForce(measurements).cost();
    const Result<Selection> exact = select(measurements, SelectMethod::exact, {kUnhurried});
    const Result<Selection> rough = select_roughly(measurements, {0});
    ASSERT_EQ(std::isfinite(best), static_cast<bool>(exact));
    ASSERT_EQ(std::isfinite(best), static_cast<bool>(rough));
    if (!exact) continue;
    ++fitting;
    ASSERT_TRUE(exact->proven);
    ASSERT_NEAR(exact->cost, best, 1e-9 * best);
    ASSERT_GE(rough->cost, best * (1 - 1e-9));
    ASSERT_LE(rough->lower_bound, best * (1 + 1e-9));
  }
  if (kSanitized) return;  // too few to count
  EXPECT_GT(fitting, 20);
  EXPECT_LT(fitting, 100);
}

TEST(Select, NothingToSelect) {
  const Result<Selection> selection = select({}, SelectMethod::exact);
  ASSERT_TRUE(selection);
  EXPECT_EQ(selection->cost, 0);
}

}  // namespace
}  // namespace millrace
