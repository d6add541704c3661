// The error of a GELU and its gradient with a tanh as inexact as the library's, and the bounds for large products.
#include "measure/library_gelu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "reference/activations.h"

namespace millrace {
namespace {

const double kRoot = std::sqrt(2 / std::numbers::pi);

// A tanh that saturates at the same points as float32's.
double wrong_tanh(double x, double by) {
  const double t = gelu_inner_tanh(x);
  return std::abs(x) > kMostNegative ? (x < 0 ? -1 : 1) : t + by;
}

double wrong_gelu(double x, double by) { return x / 2 * (1 + wrong_tanh(x, by)); }

double wrong_gradient(double x, double g, double by) {
  const double t = wrong_tanh(x, by);
  return g / 2 * (1 + t + x * (1 - t * t) * kRoot * (1 + 3 * 0.044715 * x * x));
}

template <class Body>
void each(double from, double to, const Body& body) {
  constexpr int kSteps = 4000;
  for (int k = 0; k <= kSteps; ++k) body(from + (to - from) * k / kSteps);
}

constexpr double kRounding = 1e-6;  // for errors of higher order

TEST(LibraryGelu, ErrorsAreBounded) {
  for (const double by : {-kTanhError, kTanhError}) {
    each(-12, 12, [&](double x) {
      EXPECT_LE(std::abs(wrong_gelu(x, by) - gelu_tanh(x)), library_gelu_error(x) + kRounding) << x;
      for (const double g : {-3.0, 0.5}) {
        const double difference = std::abs(wrong_gradient(x, g, by) - gelu_tanh_dx(x, g));
        EXPECT_LE(difference, library_gelu_gradient_error(x, g) + std::abs(g * x) * 4e-6 + kRounding) << x;
      }
    });
  }
}

TEST(LibraryGelu, BoundsAreNotFarOff) {
  double most = 0;
  each(-5, 5, [&](double x) {
    if (std::abs(x) < 0.1) return;
    const double difference = std::abs(wrong_gelu(x, kTanhError) - gelu_tanh(x));
    EXPECT_GE(difference, 0.99 * library_gelu_error(x)) << x;
    most = std::max(
        most, std::abs(wrong_gradient(x, 1, kTanhError) - gelu_tanh_dx(x, 1.0)) / library_gelu_gradient_error(x, 1));
  });
  EXPECT_GT(most, 0.5);
  EXPECT_LT(library_gelu_error(1), 0x1p-10);
}

// Float32 has no number between tanh and -1 there.
TEST(LibraryGelu, MostNegativeIsWhereTanhIsMinusOne) {
  EXPECT_EQ(static_cast<float>(gelu_inner_tanh(-kMostNegative)), -1.0F);
  EXPECT_LT(std::abs(gelu_tanh(-kMostNegative)), 0x1p-20);
}

TEST(LibraryGelu, ConstantsAreCorrect) {
  each(-12, 12, [](double x) { EXPECT_LE(std::abs(gelu_tanh_dx(x, 1.0)), kSteepestGelu) << x; });
  each(0, 40, [](double x) {
    EXPECT_GE(gelu_tanh(x), x / 2) << "a GELU of the sum of magnitudes";
    EXPECT_GE(gelu_tanh_dx(x, 1.0), 0.5) << "and its slope";
  });
  each(-1, 1, [](double x) { EXPECT_LE(library_gelu_gradient_error(x, -2), 2 * kGradientError) << x; });
}

}  // namespace
}  // namespace millrace
