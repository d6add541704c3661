#include "measure/library_gelu.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "reference/activations.h"

namespace millrace {

// gelu(x) = x/2 · (1 + t).
double library_gelu_error(double x) { return kTanhError / 2 * (x < 0 ? std::min(-x, kMostNegative) : x); }

// gelu'(x) = (1 + t)/2 + x/2 · (1 - t²) · s, with s the slope of the tanh's argument.
double library_gelu_gradient_error(double x, double g) {
  const double clamped = std::clamp(x, -kMostNegative, kMostNegative);
  const double t = gelu_inner_tanh(clamped);
  const double s = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * clamped * clamped);
  return std::abs(g) * kTanhError * (0.5 + std::abs(clamped * t * s));
}

}  // namespace millrace
