// Three projections of one tensor, with biases, as an attention has them; all of one shape.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace millrace {

inline constexpr const char* kProjections = R"(
B = 5
I = 8
O = 4

def layer(x: float32[B, I], wq: float32[O, I], wk: float32[O, I], wv: float32[O, I],
          bq: float32[O], bk: float32[O], bv: float32[O]):
    q = np.einsum("bi,oi->bo", x, wq) + bq
    k = np.einsum("bi,oi->bo", x, wk) + bk
    v = np.einsum("bi,oi->bo", x, wv) + bv
    weights = np.tanh(np.einsum("bo,co->bc", q, k))
    return np.einsum("bc,co->bo", weights, v)
)";

// The weights are adjacent to each other, the biases too, and so are their gradients.
inline std::vector<std::pair<std::string, std::string>> stacked_projections() {
  return {
      {"wq+wk+wv", "stacked"}, {"d_wq+d_wk+d_wv", "stacked"}, {"bq+bk+bv", "stacked"}, {"d_bq+d_bk+d_bv", "stacked"}};
}

}  // namespace millrace
