// Programs of attentions whose queries and keys are computed row by row: rotary embeddings, biases, weights of norms.
#pragma once

#include <string>
#include <vector>

#include "ir/attention_family.h"

namespace millrace {

// P must be a multiple of 4. As many keys as queries.
inline NamedAttention attention_of_rows(std::string name, std::string arguments, std::string before) {
  NamedAttention made = attention_with(std::move(name), std::move(arguments), "softmax(causal_mask(s))");
  made.program.before = std::move(before);
  made.program.keys = 5;
  made.program.of_q = "qq";
  made.program.of_k = "kk";
  return made;
}

inline const std::string kAngles = ", c: fixed.float16[J, P], t: fixed.float16[J, P]";

// Of x, as Hugging Face writes it: the halves of an axis are swapped.
inline std::string halves(const std::string& x) {
  return x + " * c + np.concatenate([-" + x + "[..., P // 2:], " + x + "[..., :P // 2]], axis=-1) * t";
}

// Of x, as Meta writes it: neighbouring columns are a pair.
inline std::string pairs(const std::string& x) {
  const std::string even = x + "[..., 0::2]";
  const std::string odd = x + "[..., 1::2]";
  const std::string c = "c[:, 0::2]";
  const std::string t = "t[:, 0::2]";
  return "np.stack([" + even + " * " + c + " - " + odd + " * " + t + ", " + even + " * " + t + " + " + odd + " * " + c +
         "], axis=-1).reshape(" + x + ".shape)";
}

// Of x, as in GPT-NeoX: only the first half of the columns is rotated.
inline std::string partial(const std::string& x) {
  const std::string c = "c[:, :P // 4]";
  const std::string t = "t[:, :P // 4]";
  const std::string one = x + "[..., :P // 4]";
  const std::string two = x + "[..., P // 4:P // 2]";
  return "np.concatenate([" + one + " * " + c + " - " + two + " * " + t + ", " + two + " * " + c + " + " + one + " * " +
         t + ", " + x + "[..., P // 2:]], axis=-1)";
}

inline std::string lines(const std::string& qq, const std::string& kk) {
  return "    qq = " + qq + "\n    kk = " + kk + "\n";
}

// The fewest queries with which the attention can compute its rows: with one, the kernels of pairs have no index of the
// queries, so it is not recognized.
inline int fewest_rows(const NamedAttention& one) { return one.name == "pairs of neighbours" ? 2 : 1; }

inline std::vector<NamedAttention> row_family() {
  std::vector<NamedAttention> made = {
      attention_of_rows("halves swapped", kAngles, lines(halves("q"), halves("k"))),
      attention_of_rows("pairs of neighbours", kAngles, lines(pairs("q"), pairs("k"))),
      attention_of_rows("the first half of the columns", kAngles, lines(partial("q"), partial("k"))),
      attention_of_rows("only the queries", ", c: fixed.float16[J, P]", lines("q * c", "k")),
      attention_of_rows("bias and scale", ", c: fixed.float16[P], t: fixed.float16[H, 1, P]",
                        lines("(q + c) * 0.5", "k + t")),
      attention_of_rows("weight with a gradient", kAngles + ", w: float16[P], u: float16[P]",
                        "    wq = q * w\n    wk = k * u\n" + lines(halves("wq"), halves("wk"))),
      attention_of_rows("not linear", ", c: float16[B, H, J, P]", lines("np.tanh(q) * c", "silu(k)")),
      attention_of_rows("grouped heads", kAngles, lines(halves("q"), halves("k"))),
      attention_of_rows("no gradients", kAngles, lines(partial("q"), partial("k"))),
  };
  made[7].program.q = "bhgjp";
  made[7].program.scores = "bhgjk";
  made[7].program.o = "bjhgw";
  made[8].program.without_gradient = "qkv";
  return made;
}

}  // namespace millrace
