// Running error analysis: a number with a bound on its rounding error. Test: tests/reference/bounded_test.cpp.
//
// `value` is computed in float64. `error` bounds |computed - exact| for the same operations in the same order in a
// binary format of kDigits significant digits (53: float64), where + - * / sqrt round to nearest, a relative error of
// at most u = 2^-kDigits, and functions (exp, log, sin, tanh, erf, pow, …) err by at most four ulp, at most 8u:
// libraries differ by that much. Constants of the program are exact.
// - The bound is rigorous to first order: the rounding of the bound itself and underflow are ignored.
// - It holds for any order of summation: with n additions, each partial sum is at most the sum of all magnitudes, so
//   the error is at most n·u·Σ|x|. A chain of + is one sum, until another operation uses it.
// - A result that is not finite has error 0: it must equal the same infinity, or be a NaN.
// - Branches follow the computed value; only larger() accounts for the branch not taken. If rounding may change the
//   order of a comparison's operands, its result may be either: its error is one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "reference/scalar.h"

namespace millrace {

template <int kDigits = 53>
struct Bounded {
  static_assert(kDigits > 0 && kDigits <= 53);
  static constexpr double kRoundoff = 1.0 / static_cast<double>(uint64_t{1} << kDigits);
  static constexpr double kFunction = 8;  // roundoffs in four ulp

  double value = 0;
  double error = 0;

  Bounded(double exact = 0) : value(exact), magnitude(std::abs(exact)) {}
  Bounded(double computed, double bound)
      : value(computed), error(bound), terms_error(bound), magnitude(std::abs(computed)) {}

  friend double value_of(const Bounded& x) { return x.value; }
  friend bool is_zero(const Bounded& x) { return x.value == 0 && x.error == 0; }

  friend Bounded operator-(const Bounded& a) {
    Bounded negative = a;
    negative.value = -a.value;
    return negative;
  }
  friend Bounded operator+(const Bounded& a, const Bounded& b) {
    if (is_zero(a)) return b;
    if (is_zero(b)) return a;
    Bounded sum;
    sum.value = a.value + b.value;
    if (!std::isfinite(sum.value)) return {sum.value, 0};
    sum.terms_error = a.terms_error + b.terms_error;
    sum.magnitude = a.magnitude + b.magnitude;
    sum.additions = a.additions + b.additions + 1;
    sum.error = sum.terms_error + sum.additions * kRoundoff * sum.magnitude;
    return sum;
  }
  friend Bounded operator-(const Bounded& a, const Bounded& b) { return a + -b; }

  friend Bounded operator*(const Bounded& a, const Bounded& b) {
    return rounded(a.value * b.value, product(std::abs(a.value), b.error) + product(std::abs(b.value), a.error) +
                                          product(a.error, b.error));
  }

  // The sum of `terms` products, from Σ ab, Σ |a||b| and the sum of the products' propagated errors.
  static Bounded sum_of_products(double sum, double magnitudes, double propagated, double terms) {
    Bounded total(sum);
    total.terms_error = propagated + kRoundoff * magnitudes;
    total.magnitude = magnitudes;
    total.additions = terms - 1;
    total.error = total.terms_error + total.additions * kRoundoff * magnitudes;
    return total;
  }

  friend Bounded operator/(const Bounded& a, const Bounded& b) {
    const double y = a.value / b.value;
    return rounded(y, quotient(a.error + product(std::abs(y), b.error), std::abs(b.value) - b.error));
  }

  friend Bounded abs(const Bounded& a) { return {std::abs(a.value), a.error}; }

  friend Bounded sqrt(const Bounded& a) {
    const double y = std::sqrt(a.value);
    return rounded(y, a.error < a.value ? a.error / (y + std::sqrt(a.value - a.error)) : std::sqrt(a.error));
  }

  friend Bounded exp(const Bounded& a) {
    const double y = std::exp(a.value);
    return rounded(y, product(y, std::expm1(a.error)), kFunction);
  }

  friend Bounded log(const Bounded& a) {
    return rounded(std::log(a.value), quotient(a.error, a.value - a.error), kFunction);
  }

  friend Bounded expm1(const Bounded& a) {
    const double slope = std::exp(a.value);
    return rounded(std::expm1(a.value), product(slope, std::expm1(a.error)), kFunction);
  }

  friend Bounded log1p(const Bounded& a) {
    return rounded(std::log1p(a.value), quotient(a.error, 1 + a.value - a.error), kFunction);
  }

  // The derivatives of sin, cos, tanh and erf change by less than `error` within the interval.
  friend Bounded tanh(const Bounded& a) {
    const double y = std::tanh(a.value);
    return rounded(y, product(a.error, std::min(1.0, 1.0 - y * y + a.error)), kFunction);
  }

  friend Bounded erf(const Bounded& a) {
    const double steepest = 2.0 * std::numbers::inv_sqrtpi;
    const double slope = steepest * std::exp(-a.value * a.value);
    return rounded(std::erf(a.value), product(a.error, std::min(steepest, slope + a.error)), kFunction);
  }

  friend Bounded sin(const Bounded& a) {
    return rounded(std::sin(a.value), product(a.error, std::min(1.0, std::abs(std::cos(a.value)) + a.error)),
                   kFunction);
  }

  friend Bounded cos(const Bounded& a) {
    return rounded(std::cos(a.value), product(a.error, std::min(1.0, std::abs(std::sin(a.value)) + a.error)),
                   kFunction);
  }

  // If rounding may have moved the number across zero, the sign may be any.
  friend Bounded sign(const Bounded& a) {
    const double y = millrace::sign(a.value);
    return {y, a.error > 0 && std::abs(a.value) <= a.error ? 1 + std::abs(y) : 0};
  }

  // The derivative's magnitude is monotone in |x|: it is largest at an end of the interval.
  friend Bounded pow(const Bounded& a, double exponent) {
    const double far = std::pow(std::abs(a.value) + a.error, exponent - 1);
    const double near = std::pow(std::max(std::abs(a.value) - a.error, 0.0), exponent - 1);
    return rounded(std::pow(a.value, exponent), product(a.error, product(std::abs(exponent), std::max(far, near))),
                   kFunction);
  }

  friend Bounded larger(const Bounded& a, const Bounded& b) {
    const bool second = a.value < b.value || b.value != b.value;
    const Bounded& taken = second ? b : a;
    const Bounded& other = second ? a : b;
    return {taken.value, std::max(taken.error, other.value - taken.value + other.error)};
  }

  friend Bounded decided(bool outcome, const Bounded& a, const Bounded& b) {
    const double distance = std::abs(a.value - b.value);
    const double moved = a.error + b.error;
    return {outcome ? 1.0 : 0.0, moved > 0 && distance <= moved ? 1.0 : 0.0};
  }

  // For a sum: the error and the magnitude of its terms, and the number of additions.
  double terms_error = 0;
  double magnitude = 0;
  double additions = 0;

 private:
  static Bounded rounded(double y, double propagated, double roundoffs = 1) {
    if (!std::isfinite(y)) return {y, 0};
    return {y, propagated + roundoffs * kRoundoff * std::abs(y)};
  }

  // Zero error stays zero, even times infinity.
  static double product(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

  // If rounding may have moved the divisor to zero, there is no bound.
  static double quotient(double a, double b) {
    if (a == 0) return 0;
    return b > 0 ? a / b : std::numeric_limits<double>::infinity();
  }
};

}  // namespace millrace
