// Programs of the attentions that users write: biases, masks, windows, soft-caps.
#pragma once

#include <string>
#include <vector>

#include "ir/attention_program.h"

namespace millrace {

struct NamedAttention {
  std::string name;
  AttentionProgram program;
};

inline NamedAttention attention_with(std::string name, std::string arguments, std::string weights) {
  NamedAttention made{std::move(name), {}};
  made.program.arguments = std::move(arguments);
  made.program.weights = std::move(weights);
  return made;
}

inline const std::string kQueryPosition = "np.arange(J)[:, None]";
inline const std::string kKeyPosition = "np.arange(K)[None, :]";

inline std::vector<NamedAttention> attention_family() {
  const std::string q = kQueryPosition;
  const std::string k = kKeyPosition;
  std::vector<NamedAttention> made = {
      attention_with("bias with a gradient, as in T5", ", c: float16[H, J, K]", "dropout(softmax(s + c), p=0.25)"),
      attention_with("bias for all heads, scaled later, causal", ", c: float16[J, K]",
                     "softmax(causal_mask((s + c) * 0.75))"),
      attention_with("additive padding mask", ", m: fixed.float16[B, K]", "softmax(s + m[:, None, None, :])"),
      attention_with("boolean padding mask", ", m: bool_[B, K]", "softmax(np.where(m[:, None, None, :], s, -1e9))"),
      attention_with("boolean mask that hides", ", m: bool_[J, K]",
                     "dropout(softmax(np.where(m, -np.inf, s)), p=0.25)"),
      attention_with("soft-cap, as in Gemma", "", "softmax(causal_mask(2.0 * np.tanh(s / 2.0)))"),
      attention_with("ALiBi", ", c: fixed.float16[H]",
                     "softmax(causal_mask(s + c[:, None, None] * (" + k + " - " + q + ")))"),
      attention_with(
          "sliding window", "",
          "softmax(np.where(np.logical_and(" + k + " <= " + q + " + 2, " + q + " - " + k + " < 3), s, -np.inf))"),
      attention_with("window with a soft-cap and a bias", ", c: float16[H, J, K]",
                     "softmax(np.where(" + q + " - " + k + " < 2, np.tanh(s) + c, -30000.0))"),
      attention_with("packed sequences", ", g: int32[B, J]",
                     "softmax(causal_mask(np.where(g[:, None, :, None] == g[:, None, None, :], s, -30000.0)))"),
  };
  made.back().program.keys = 5;
  made.back().program.type = "bfloat16";
  made.push_back({"two inner indices, as of a rotary embedding", {}});
  made.back().program.q = "bhjrp";
  made.back().program.k = "bhkrp";
  return made;
}

// Attentions of which not all operands need a gradient, as with frozen weights.
inline std::vector<NamedAttention> attentions_of_some_gradients() {
  const auto made = [](std::string without, std::string arguments, std::string weights) {
    NamedAttention one = attention_with("no gradients of " + without, std::move(arguments), std::move(weights));
    one.program.without_gradient = std::move(without);
    return one;
  };
  std::vector<NamedAttention> all = {
      made("kv", "", "dropout(softmax(s), p=0.25)"),
      made("qv", "", "softmax(causal_mask(2.0 * np.tanh(s / 2.0)))"),
      made("qk", "", "dropout(softmax(causal_mask(s)), p=0.25)"),
      made("q", ", c: float16[H, J, K]", "softmax(s + c)"),
      made("k", "", "softmax(causal_mask(s))"),
      made("v", "", "dropout(softmax(s), p=0.25)"),
      made("qkv", ", c: float16[H, J, K]", "softmax(np.tanh(s) + c)"),
      made("qk", ", m: bool_[B, K]", "softmax(np.where(m[:, None, None, :], s, -1e9))"),
  };
  all[1].program.q = "bhrjp";  // grouped heads
  all[1].program.scores = "bhrjk";
  all[1].program.o = "bhrjw";
  return all;
}

// Inference: nothing of the attention is in backward.
inline std::vector<NamedAttention> attentions_without_gradients() {
  std::vector<NamedAttention> all = {attention_with("plain", "", "softmax(causal_mask(s))"),
                                     attention_with("soft-cap", "", "softmax(2.0 * np.tanh(s / 2.0))")};
  for (NamedAttention& each : all) each.program.without_gradient = "qkv";
  return all;
}

}  // namespace millrace
