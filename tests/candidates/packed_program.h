// A projection of packed weights whose parts are used separately, as in an attention.
#pragma once

namespace millrace {

inline constexpr const char* kPacked = R"(
B = 5
I = 8
O = 4

def layer(x: float32[B, I], w: float32[I, 3 * O], b: float32[3 * O]):
    q, k, v = np.split(x @ w + b, 3, axis=-1)
    weights = np.tanh(np.einsum("bo,co->bc", q, k))
    return np.einsum("bc,co->bo", weights, v)
)";

}  // namespace millrace
