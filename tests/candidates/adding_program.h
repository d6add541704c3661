// Sums of products and other tensors, forward and backward: several products, a batch, and one with a factor.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace millrace {

inline constexpr const char* kSums = R"(
B = 6
I = 4
O = 5
D = 2


def layer(x: float32[I, B], wq: float32[I, O], wk: float32[I, O], wv: float32[I, O], p: float32[I, B],
          m: float32[O, B], t: float32[D, B, I], u: float32[D, I, O], n: float32[D, B, O], o: float32[O, B]):
    negative = o + -2 * np.einsum("ib,io->ob", x, wk)
    twice = m + np.einsum("ib,io->ob", x, wq) + np.einsum("ib,io->ob", p, wk)
    batch = n + np.einsum("dbi,dio->dbo", t, u)
    return negative, twice, batch, np.einsum("ib,io->ob", x, wv), x
)";

// Forward and backward stack the weights differently, so their layouts are free.
inline std::vector<std::pair<std::string, std::string>> free_weights() {
  return {{"wq", "any"}, {"wk", "any"}, {"wv", "any"}};
}

}  // namespace millrace
