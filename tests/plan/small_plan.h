// The plan of a small program with dropout, stacked products, conversions and a scalar.
#pragma once

#include "plan/random_plan.h"

namespace millrace {

inline constexpr const char* kSmallProgram = R"(
B = 3
I = 4
O = 5

def layer(x: float64[B, I], w: float64[O, I], b: float64[O], s: float64):
    y = np.einsum("bi,oi->bo", x, w) + b
    z = dropout(relu(y * s), 0.25)
    z = softmax(z, axis=1)
    return z
)";

// Its tensors have enough layouts for conversions in several steps.
inline constexpr const char* kThreeAxesProgram = R"(
B = 2
H = 3
I = 4
O = 5

def layer(x: float64[B, H, I], w: float64[H, O, I]):
    y = relu(np.einsum("bhi,hoi->bho", x, w))
    return np.einsum("bho,hoi->bhi", softmax(y, axis=2), w) * x
)";

inline const MadePlan& small_plan() {
  static const MadePlan made = make_plan(kSmallProgram, {});
  return made;
}

}  // namespace millrace
