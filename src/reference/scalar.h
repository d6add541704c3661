// What the interpreter asks of a Scalar beyond arithmetic, conversion from double and the functions of <cmath>; here
// for double. Bounded and Dual have their own.
#pragma once

namespace millrace {

// What comparisons and branches look at.
inline double value_of(double x) { return x; }

// Whether x is zero and nothing is attached to it, so that its product even with an infinity is taken to be zero.
inline bool is_zero(double x) { return x == 0; }

// The maximum; of equals the first, and a NaN if there is one.
inline double larger(double a, double b) { return a < b || b != b ? b : a; }

// What a comparison of a and b came to.
inline double decided(bool reference_data, double, double) { return reference_data ? 1 : 0; }

template <class Scalar>
Scalar smaller(const Scalar& a, const Scalar& b) {
  return -larger(-a, -b);
}

}  // namespace millrace
