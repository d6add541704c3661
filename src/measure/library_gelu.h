// How far a library's GELU, and the gradient of one, may lie from what the reference makes of the same numbers: what
// the program rounds to half precision is not worth an exact tanh to the library. Test:
// tests/measure/library_gelu_test.cpp
#pragma once

namespace millrace {

// Of its tanh, which is an instruction of the GPU (decisions/0005 says how that is known). It is right to 2^-11 of the
// result (PTX ISA, tanh.approx.f32); twice that, since its argument is rounded too.
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
