// The functions that the interpreter needs for a Scalar, besides arithmetic, conversion from double and <cmath>: here
// for double. Bounded and Dual define their own. Tests: tests/reference/interpreter_test.cpp.
#pragma once

namespace millrace {

// The value that comparisons and branches use.
inline double value_of(double x) { return x; }

// Whether x is zero without error or derivative, so that its product with an infinity counts as zero.
inline bool is_zero(double x) { return x == 0; }

// The maximum: the first of equal values, and NaN if either is NaN.
inline double larger(double a, double b) { return a < b || b != b ? b : a; }

// -1, 0 or 1.
inline double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

// The result of a comparison of a and b, as 0 or 1.
inline double decided(bool outcome, double, double) { return outcome ? 1 : 0; }

// The maximum of two variables, which share its derivative where they are equal. Only Dual has one.
template <class Scalar>
Scalar shared_larger(const Scalar& a, const Scalar& b) {
  return larger(a, b);
}

template <class Scalar>
Scalar shared_smaller(const Scalar& a, const Scalar& b) {
  return -shared_larger(-a, -b);
}

template <class Scalar>
Scalar smaller(const Scalar& a, const Scalar& b) {
  return -larger(-a, -b);
}

}  // namespace millrace
