// Error bounds of a library's GELU and its gradient relative to the reference: for half-precision results, cuBLASLt
// uses an approximate tanh. oneDNN's tanh and erf are more exact. Test: tests/measure/library_gelu_test.cpp
#pragma once

namespace millrace {

// The relative error of its tanh, which is a GPU instruction (decisions/0005 says how we know). PTX ISA states 2^-11
// for tanh.approx.f32; we allow twice that, since its argument is rounded too.
inline constexpr double kTanhError = 0x1p-10;

// For x below minus this, tanh is exactly -1 in float32, so the GELU is exactly zero.
inline constexpr double kMostNegative = 5.25;

// Error of a GELU at x.
double library_gelu_error(double x);

// Error of g · gelu'(x).
double library_gelu_gradient_error(double x, double g);

// The largest slope of a GELU, and the largest error of its gradient relative to g, for |x| up to 1.
inline constexpr double kSteepestGelu = 1.13;
inline constexpr double kGradientError = 1.12 * kTanhError;

}  // namespace millrace
