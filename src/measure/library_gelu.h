// How far a library's GELU, and the gradient of one, may lie from what the reference makes of the same numbers: what
// the program rounds to half precision is not worth an exact tanh to the library. Test:
// tests/measure/library_gelu_test.cpp
#pragma once

namespace millrace {

// Of its tanh. The instruction of the GPU that is there for it is right to 2^-11 of the result in float32, and to
// 2^-10.987 in float16 (PTX ISA, tanh.approx); twice that, since its argument is rounded too.
inline constexpr double kTanhError = 0x1p-10;

// Where tanh is -1 to float32's last bit there is nothing to be wrong about: a GELU of less than this is nought.
inline constexpr double kMostNegative = 5.25;

// Of a GELU at x.
double library_gelu_error(double x);

// Of g · gelu'(x).
double library_gelu_gradient_error(double x, double g);

// The largest slope of a GELU, and what of a gradient's g its error can be, at most, for |x| up to 1.
inline constexpr double kSteepestGelu = 1.13;
inline constexpr double kGradientError = 1.12 * kTanhError;

}  // namespace millrace
