// Forward-mode differentiation: a number and its derivative along one direction of the inputs. It shares no code with
// autodiff, which it checks. At a kink it has PyTorch's derivative (docs/language.md). Tests: tests/random/,
// tests/autodiff/ties_test.cpp.
#pragma once

#include <cmath>
#include <numbers>

#include "reference/scalar.h"

namespace millrace {

template <class T>
struct Dual {
  T value = T(0);
  T tangent = T(0);

  Dual(double constant = 0) : value(constant) {}
  Dual(const T& of_value, const T& of_tangent) : value(of_value), tangent(of_tangent) {}

  friend double value_of(const Dual& x) { return value_of(x.value); }
  friend bool is_zero(const Dual& x) { return is_zero(x.value) && is_zero(x.tangent); }

  friend Dual operator-(const Dual& a) { return {-a.value, -a.tangent}; }
  friend Dual operator+(const Dual& a, const Dual& b) { return {a.value + b.value, a.tangent + b.tangent}; }
  friend Dual operator-(const Dual& a, const Dual& b) { return {a.value - b.value, a.tangent - b.tangent}; }

  friend Dual operator*(const Dual& a, const Dual& b) {
    return {a.value * b.value, chain(b.value, a.tangent) + chain(a.value, b.tangent)};
  }

  friend Dual operator/(const Dual& a, const Dual& b) {
    const T y = a.value / b.value;
    return {y, (a.tangent - chain(y, b.tangent)) / b.value};
  }

  friend Dual abs(const Dual& a) {
    const Dual magnitude = value_of(a) < 0 ? -a : a;
    return {magnitude.value, value_of(a) == 0 ? T(0) : magnitude.tangent};
  }

  friend Dual sqrt(const Dual& a) {
    using std::sqrt;
    const T y = sqrt(a.value);
    return {y, a.tangent / (T(2) * y)};
  }

  friend Dual exp(const Dual& a) {
    using std::exp;
    const T y = exp(a.value);
    return {y, chain(y, a.tangent)};
  }

  friend Dual log(const Dual& a) {
    using std::log;
    return {log(a.value), a.tangent / a.value};
  }

  friend Dual tanh(const Dual& a) {
    using std::tanh;
    const T y = tanh(a.value);
    return {y, chain(T(1) - y * y, a.tangent)};
  }

  friend Dual erf(const Dual& a) {
    using std::erf, std::exp;
    return {erf(a.value), chain(T(2.0 * std::numbers::inv_sqrtpi) * exp(-(a.value * a.value)), a.tangent)};
  }

  friend Dual sin(const Dual& a) {
    using std::cos, std::sin;
    return {sin(a.value), chain(cos(a.value), a.tangent)};
  }

  friend Dual cos(const Dual& a) {
    using std::cos, std::sin;
    return {cos(a.value), chain(-sin(a.value), a.tangent)};
  }

  friend Dual expm1(const Dual& a) {
    using std::exp, std::expm1;
    return {expm1(a.value), chain(exp(a.value), a.tangent)};
  }

  friend Dual log1p(const Dual& a) {
    using std::log1p;
    return {log1p(a.value), a.tangent / (T(1) + a.value)};
  }

  friend Dual sign(const Dual& a) { return {sign(a.value), T(0)}; }

  friend Dual pow(const Dual& a, double exponent) {
    using std::pow;
    return {pow(a.value, exponent), chain(T(exponent) * pow(a.value, exponent - 1), a.tangent)};
  }

  friend Dual larger(const Dual& a, const Dual& b) {
    const double second = value_of(b);
    const bool takes_second = value_of(a) < second || second != second;
    return {larger(a.value, b.value), takes_second ? b.tangent : a.tangent};
  }

  friend Dual shared_larger(const Dual& a, const Dual& b) {
    const Dual one = larger(a, b);
    return {one.value, value_of(a) == value_of(b) ? (a.tangent + b.tangent) / T(2) : one.tangent};
  }

  friend Dual decided(bool outcome, const Dual& a, const Dual& b) { return {decided(outcome, a.value, b.value), T(0)}; }

 private:
  // A constant input gives derivative zero even where the function's derivative is infinite (a masked element is -inf).
  static T chain(const T& slope, const T& tangent) { return is_zero(tangent) ? T(0) : slope * tangent; }
};

}  // namespace millrace
