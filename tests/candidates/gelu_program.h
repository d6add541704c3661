// Two GELUs between products: with a bias, and of a batch.
#pragma once

namespace millrace {

inline constexpr const char* kGelus = R"(
B = 6
I = 4
U = 8
D = 2


def mlp(x: float16[B, I], w1: float16[I, U], b1: float16[U], w2: float16[U, I], t: float16[D, B, I],
        v1: float16[D, I, U], v2: float16[D, U, I]):
    linear = np.einsum("bi,iu->bu", x, w1) + b1
    hidden = gelu_tanh(linear)
    batch = np.einsum("dbi,diu->dbu", t, v1)
    curved = gelu_tanh(batch)
    first = np.einsum("bu,ui->bi", hidden, w2)
    second = np.einsum("dbu,dui->dbi", curved, v2)
    return first, second
)";

}  // namespace millrace
