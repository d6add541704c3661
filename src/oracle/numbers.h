// Running error analysis on a GPU, as reference/bounded.h defines it: a number in double precision, and a bound of its
// error in arithmetic with roundoff u. It shares no code with the interpreter, which checks it. Follows task.h and
// cuda_hardware.h in the kernels' source. Test: tests/oracle/oracle_test.cpp
#pragma once

// Not inlined on a GPU: the formulas call them hundreds of times, and NVRTC would take half a minute.
#ifdef __CUDACC__
#define ORACLE_FUNCTION __device__ __noinline__
#else
#define ORACLE_FUNCTION inline
#endif

namespace millrace::oracle {

constexpr double kFunctionRoundoffs = 8;  // four ulp

// A sum remembers the error and magnitude of its terms and the number of additions.
struct Number {
  double value;
  double error;
  double terms_error;
  double magnitude;
  double additions;
};

MR_DEVICE double magnitude_of(double x) { return x < 0 ? -x : x; }
MR_DEVICE bool is_finite(double x) { return x - x == 0; }
MR_DEVICE double least(double a, double b) { return b < a ? b : a; }
MR_DEVICE double greatest(double a, double b) { return a < b ? b : a; }
MR_DEVICE double infinite() { return static_cast<double>(mr::infinity()); }

MR_DEVICE Number exact(double x) { return {x, 0, 0, magnitude_of(x), 0}; }
MR_DEVICE Number bounded(double x, double error) { return {x, error, error, magnitude_of(x), 0}; }
MR_DEVICE bool is_zero(const Number& x) { return x.value == 0 && x.error == 0; }

MR_DEVICE Number negative(Number a) {
  a.value = -a.value;
  return a;
}

// Products and quotients of errors. A zero error stays zero, even times infinity.
MR_DEVICE double error_product(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }
MR_DEVICE double error_quotient(double a, double b) { return a == 0 ? 0 : b > 0 ? a / b : infinite(); }

ORACLE_FUNCTION Number larger(const Number& a, const Number& b) {
  const bool second = a.value < b.value || b.value != b.value;
  const Number& taken = second ? b : a;
  const Number& other = second ? a : b;
  return bounded(taken.value, greatest(taken.error, other.value - taken.value + other.error));
}
ORACLE_FUNCTION Number smaller(const Number& a, const Number& b) { return negative(larger(negative(a), negative(b))); }

MR_DEVICE Number absolute(const Number& a) { return bounded(magnitude_of(a.value), a.error); }

// A comparison that rounding may change has an error of one.
ORACLE_FUNCTION Number decided(bool outcome, const Number& a, const Number& b) {
  const double moved = a.error + b.error;
  return bounded(outcome ? 1 : 0, moved > 0 && magnitude_of(a.value - b.value) <= moved ? 1 : 0);
}

ORACLE_FUNCTION Number sign(const Number& a) {
  const double y = a.value > 0 ? 1 : a.value < 0 ? -1 : a.value;
  return bounded(y, a.error > 0 && magnitude_of(a.value) <= a.error ? 1 + magnitude_of(y) : 0);
}

// Arithmetic with a roundoff.
struct Arithmetic {
  double u;

  MR_DEVICE Number rounded(double y, double propagated, double roundoffs) const {
    return is_finite(y) ? bounded(y, propagated + roundoffs * u * magnitude_of(y)) : bounded(y, 0);
  }

  ORACLE_FUNCTION Number add(const Number& a, const Number& b) const {
    if (is_zero(a)) return b;
    if (is_zero(b)) return a;
    Number sum;
    sum.value = a.value + b.value;
    if (!is_finite(sum.value)) return bounded(sum.value, 0);
    sum.terms_error = a.terms_error + b.terms_error;
    sum.magnitude = a.magnitude + b.magnitude;
    sum.additions = a.additions + b.additions + 1;
    sum.error = sum.terms_error + sum.additions * u * sum.magnitude;
    return sum;
  }
  MR_DEVICE Number subtract(const Number& a, const Number& b) const { return add(a, negative(b)); }
  ORACLE_FUNCTION Number multiply(const Number& a, const Number& b) const {
    const double propagated = error_product(magnitude_of(a.value), b.error) +
                              error_product(magnitude_of(b.value), a.error) + error_product(a.error, b.error);
    return rounded(a.value * b.value, propagated, 1);
  }
  ORACLE_FUNCTION Number divide(const Number& a, const Number& b) const {
    const double y = a.value / b.value;
    const double moved = a.error + error_product(magnitude_of(y), b.error);
    return rounded(y, error_quotient(moved, magnitude_of(b.value) - b.error), 1);
  }
  ORACLE_FUNCTION Number root(const Number& a) const {
    const double y = mr::root_of(a.value);
    return rounded(y, a.error < a.value ? a.error / (y + mr::root_of(a.value - a.error)) : mr::root_of(a.error), 1);
  }
};

ORACLE_FUNCTION Number exponential(const Arithmetic& m, const Number& a) {
  const double y = mr::exp_of(a.value);
  return m.rounded(y, error_product(y, mr::expm1_of(a.error)), kFunctionRoundoffs);
}
ORACLE_FUNCTION Number logarithm(const Arithmetic& m, const Number& a) {
  return m.rounded(mr::log_of(a.value), error_quotient(a.error, a.value - a.error), kFunctionRoundoffs);
}
ORACLE_FUNCTION Number exponential_less_one(const Arithmetic& m, const Number& a) {
  const double moved = error_product(mr::exp_of(a.value), mr::expm1_of(a.error));
  return m.rounded(mr::expm1_of(a.value), moved, kFunctionRoundoffs);
}
ORACLE_FUNCTION Number logarithm_plus_one(const Arithmetic& m, const Number& a) {
  return m.rounded(mr::log1p_of(a.value), error_quotient(a.error, 1 + a.value - a.error), kFunctionRoundoffs);
}
// The slopes of tanh, erf, sin and cos change by less than the argument's error.
ORACLE_FUNCTION Number hyperbolic_tangent(const Arithmetic& m, const Number& a) {
  const double y = mr::tanh_of(a.value);
  return m.rounded(y, error_product(a.error, least(1.0, 1.0 - y * y + a.error)), kFunctionRoundoffs);
}
constexpr double kSlopeOfErf = 1.1283791670955126;  // 2/√π
ORACLE_FUNCTION Number error_function(const Arithmetic& m, const Number& a) {
  const double slope = kSlopeOfErf * mr::exp_of(-a.value * a.value);
  return m.rounded(mr::erf_of(a.value), error_product(a.error, least(kSlopeOfErf, slope + a.error)),
                   kFunctionRoundoffs);
}
ORACLE_FUNCTION Number sine(const Arithmetic& m, const Number& a) {
  const double slope = magnitude_of(mr::cos_of(a.value)) + a.error;
  return m.rounded(mr::sin_of(a.value), error_product(a.error, least(1.0, slope)), kFunctionRoundoffs);
}
ORACLE_FUNCTION Number cosine(const Arithmetic& m, const Number& a) {
  const double slope = magnitude_of(mr::sin_of(a.value)) + a.error;
  return m.rounded(mr::cos_of(a.value), error_product(a.error, least(1.0, slope)), kFunctionRoundoffs);
}
// The slope's magnitude is largest at an end of the interval.
ORACLE_FUNCTION Number power(const Arithmetic& m, const Number& a, double exponent) {
  const double size = magnitude_of(a.value);
  const double far = mr::power_of(size + a.error, exponent - 1);
  const double near = mr::power_of(greatest(size - a.error, 0.0), exponent - 1);
  const double moved = error_product(a.error, error_product(magnitude_of(exponent), greatest(far, near)));
  return m.rounded(mr::power_of(a.value, exponent), moved, kFunctionRoundoffs);
}

}  // namespace millrace::oracle
