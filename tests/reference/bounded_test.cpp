// Sums in any order are within the bound of the serial sum.
#include "reference/bounded.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace millrace {
namespace {

using Single = Bounded<24>;

// The terms in a random order, summed as a random tree, in float32.
float random_tree_sum(std::vector<float> terms, std::mt19937_64& random) {
  std::shuffle(terms.begin(), terms.end(), random);
  while (terms.size() > 1) {
    const size_t at = random() % (terms.size() - 1);
    terms[at] += terms[at + 1];
    terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  return terms.front();
}

// A sum in lanes: sums every eighth term, then the eight sums in order.
float lanes_sum(const std::vector<float>& terms) {
  std::vector<float> lanes(8, 0);
  for (size_t k = 0; k < terms.size(); ++k) lanes[k % 8] += terms[k];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

std::vector<float> random_terms(std::mt19937_64& random) {
  const size_t count = 2 + random() % 60;
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> exponent(-12, 12);
  const bool wild = random() % 2 == 0;  // very different magnitudes, with terms that cancel
  std::vector<float> terms;
  for (size_t k = 0; k < count; ++k)
    terms.push_back(static_cast<float>(std::ldexp(normal(random), wild ? exponent(random) : 0)));
  if (wild) {
    for (size_t k = 0; k + 1 < count; k += 3) terms[k + 1] = -terms[k];
  }
  return terms;
}

TEST(Bounded, SumsInAnyOrderAreWithinTheBoundOfTheSerialSum) {
  std::mt19937_64 random(1);
  double closest = 0;  // the largest fraction of a bound that was needed
  for (int round = 0; round < 3000; ++round) {
    const std::vector<float> terms = random_terms(random);
    Single serial;
    for (const float term : terms) serial = serial + Single(term);
    for (int order = 0; order < 4; ++order) {
      const float found = order == 0 ? lanes_sum(terms) : random_tree_sum(terms, random);
      const double error = std::abs(static_cast<double>(found) - serial.value);
      ASSERT_LE(error, serial.error) << "round " << round << ", " << terms.size() << " terms";
      if (serial.error > 0) closest = std::max(closest, error / serial.error);
    }
  }
  EXPECT_GT(closest, 0.2) << "a bound that nothing comes near tells nothing";
}

TEST(Bounded, DotProductsInAnyOrderAreWithinTheBoundOfTheSerialOne) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::vector<float> a = random_terms(random);
    std::vector<float> b = random_terms(random);
    const size_t count = std::min(a.size(), b.size());
    a.resize(count);
    b.resize(count);
    Single serial;
    std::vector<float> products;
    float fused = 0;
    for (size_t k = 0; k < count; ++k) {
      serial = serial + Single(a[k]) * Single(b[k]);
      products.push_back(a[k] * b[k]);
      fused = std::fmaf(a[k], b[k], fused);
    }
    ASSERT_LE(std::abs(static_cast<double>(random_tree_sum(products, random)) - serial.value), serial.error) << round;
    ASSERT_LE(std::abs(static_cast<double>(fused) - serial.value), serial.error) << round;
  }
}

// After a sum, the chain ends, and its bound propagates like any other error.
TEST(Bounded, OperationsOnASumKeepTheBound) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<float> terms = random_terms(random);
    Single serial;
    for (const float term : terms) serial = serial + Single(term);
    const auto count = static_cast<double>(terms.size());
    const Single mean = serial / Single(count);
    Single deviations;
    for (const float term : terms) deviations = deviations + (Single(term) - mean) * (Single(term) - mean);
    const float found_mean = random_tree_sum(terms, random) / static_cast<float>(count);
    std::vector<float> squares;
    for (const float term : terms) squares.push_back((term - found_mean) * (term - found_mean));
    ASSERT_LE(std::abs(static_cast<double>(found_mean) - mean.value), mean.error) << round;
    ASSERT_LE(std::abs(static_cast<double>(random_tree_sum(squares, random)) - deviations.value), deviations.error)
        << round;
  }
}

// A comparison has an error only if rounding may change the order of its operands.
TEST(Bounded, AComparisonHasAnErrorIfRoundingDecides) {
  const Single sum = Single(0.1) + Single(-0.1);
  ASSERT_GT(sum.error, 0);
  const auto positive = [](const Single& x) { return decided(0 < x.value, Single(0), x); };
  EXPECT_EQ(positive(sum).error, 1);
  EXPECT_EQ(positive(sum + Single(1)).error, 0);
  EXPECT_EQ(positive(sum + Single(1)).value, 1);
  EXPECT_EQ(positive(sum + Single(-1)).value, 0);
  EXPECT_EQ(positive(Single(0)).error, 0) << "an exact zero is not positive";
  EXPECT_EQ(positive(larger(Single(0), sum + Single(-1))).error, 0) << "nor what a ReLU cut off";
  EXPECT_EQ(positive(Single(std::nan(""))).value, 0);
  EXPECT_EQ(positive(Single(std::nan(""))).error, 0);
}

TEST(Bounded, ABoundIsNotTooWide) {
  // A thousand ones: the bound is far below one missing term.
  Single sum;
  for (int k = 0; k < 1000; ++k) sum = sum + Single(1.0);
  EXPECT_EQ(sum.value, 1000);
  EXPECT_LT(sum.error, 0.1);
  // Not finite: no value is within the bound.
  EXPECT_EQ((Single(1e308) * Single(1e308)).error, 0);
}

// For a function of rounded float32 arguments: the result is within the bound, and the bound is not much too large.
template <class Computed, class Function>
void expect_within_bound(const char* name, double low, double high, const Computed& computed,
                         const Function& function) {
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> uniform(low, high);
  double closest = 0;
  for (int round = 0; round < 20000; ++round) {
    const double exact = uniform(random);
    const auto stored = static_cast<float>(exact);
    const Single bounded = function(Single(exact, std::abs(exact) * 0x1p-24));
    const double error = std::abs(static_cast<double>(computed(stored)) - bounded.value);
    ASSERT_LE(error, bounded.error) << name << " of " << exact;
    if (bounded.error > 0) closest = std::max(closest, error / bounded.error);
  }
  EXPECT_GT(closest, 0.1) << name;
}

TEST(Bounded, FunctionsOfRoundedNumbersAreWithinTheirBounds) {
  expect_within_bound(
      "sin", -9, 9, [](float x) { return std::sin(x); }, [](const Single& x) { return sin(x); });
  expect_within_bound(
      "cos", -9, 9, [](float x) { return std::cos(x); }, [](const Single& x) { return cos(x); });
  expect_within_bound(
      "log1p", -0.99, 4, [](float x) { return std::log1p(x); }, [](const Single& x) { return log1p(x); });
  expect_within_bound(
      "expm1", -3, 3, [](float x) { return std::expm1(x); }, [](const Single& x) { return expm1(x); });
}

TEST(Bounded, ASignNearItsJumpMayBeAny) {
  EXPECT_EQ(sign(Single(0.5, 0.25)).error, 0);
  EXPECT_EQ(sign(Single(0.5, 0.5)).error, 2);
  EXPECT_EQ(sign(Single(0.0, 0.5)).error, 1);
  EXPECT_EQ(sign(Single(0.0)).error, 0);
}

// A conjunction is certain if one side is certainly false.
TEST(Bounded, LogicKnowsWhichOutcomesRoundingMayChange) {
  const Single unsure(1.0, 1.0);
  const Single no(0.0);
  const Single yes(1.0);
  EXPECT_EQ(smaller(no, unsure).error, 0);
  EXPECT_EQ(smaller(yes, unsure).error, 1);
  EXPECT_EQ(larger(yes, Single(0.0, 1.0)).error, 0);
  EXPECT_EQ(larger(no, unsure).error, 1);
  EXPECT_EQ(decided(false, unsure, Single(0)).error, 1);
  EXPECT_EQ(decided(false, yes, Single(0)).error, 0);
}

}  // namespace
}  // namespace millrace
