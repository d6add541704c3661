// The longer elementwise functions and their derivatives: `_dx` is g times the derivative at a.
// Tests: tests/reference/interpreter_test.cpp.
#pragma once

#include <cmath>
#include <numbers>

#include "reference/scalar.h"

namespace millrace {

// Φ(a), the normal distribution function.
template <class Scalar>
Scalar normal_cdf(const Scalar& a) {
  using std::erf, std::sqrt;
  return Scalar(0.5) * (Scalar(1) + erf(a / sqrt(Scalar(2))));
}

template <class Scalar>
Scalar gelu_dx(const Scalar& a, const Scalar& g) {
  using std::exp, std::sqrt;
  const Scalar density = exp(Scalar(-0.5) * a * a) / sqrt(Scalar(2 * std::numbers::pi));
  return g * (normal_cdf(a) + a * density);
}

// tanh(√(2/π) · (a + 0.044715 a³))
template <class Scalar>
Scalar gelu_inner_tanh(const Scalar& a) {
  using std::sqrt, std::tanh;
  return tanh(sqrt(Scalar(2 / std::numbers::pi)) * (a + Scalar(0.044715) * a * a * a));
}

template <class Scalar>
Scalar gelu_tanh(const Scalar& a) {
  return Scalar(0.5) * a * (Scalar(1) + gelu_inner_tanh(a));
}

template <class Scalar>
Scalar gelu_tanh_dx(const Scalar& a, const Scalar& g) {
  using std::sqrt;
  const Scalar t = gelu_inner_tanh(a);
  const Scalar inner_slope = sqrt(Scalar(2 / std::numbers::pi)) * (Scalar(1) + Scalar(3 * 0.044715) * a * a);
  return g * Scalar(0.5) * (Scalar(1) + t + a * (Scalar(1) - t * t) * inner_slope);
}

template <class Scalar>
Scalar sigmoid(const Scalar& a) {
  using std::exp;
  return Scalar(1) / (Scalar(1) + exp(-a));
}

// log(1 + exp(a)); the exponential is at most one.
template <class Scalar>
Scalar softplus(const Scalar& a) {
  using std::abs, std::exp, std::log1p;
  return larger(a, Scalar(0)) + log1p(exp(-abs(a)));
}

template <class Scalar>
Scalar erf_dx(const Scalar& a, const Scalar& g) {
  using std::exp;
  return g * (Scalar(2 * std::numbers::inv_sqrtpi) * exp(-(a * a)));
}

template <class Scalar>
Scalar silu_dx(const Scalar& a, const Scalar& g) {
  const Scalar s = sigmoid(a);
  return g * s * (Scalar(1) + a * (Scalar(1) - s));
}

}  // namespace millrace
