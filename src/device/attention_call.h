// Fused attention as cuDNN receives it.
// Tests: tests/device/cuda/cudnn_attention_test.cpp, tests/codegen/cudnn_call_test.cpp
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/stored_type.h"

namespace millrace {

// Forward: o = softmax(scale · q kᵀ) v, and log_sums, the logarithm of each row's sum of exponentials (f32).
// Backward: d_q, d_k and d_v from q, k, v, o, log_sums and d_o. Strides are in elements.
struct AttentionCall {
  enum Operand : size_t { q, k, v, o, log_sums, d_o, d_q, d_k, d_v };
  static constexpr size_t kOperands = 9;

  // The strides of an operand: between batches, between heads, between rows (queries or keys), and between columns.
  struct Strides {
    int64_t batch = 0;
    int64_t head = 0;
    int64_t row = 0;
    int64_t column = 0;

    auto operator<=>(const Strides&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees one
  };

  bool backward = false;
  bool causal = false;                // query i attends to keys 0 to i
  StoredType type = StoredType::f16;  // of all operands except log_sums
  int64_t batches = 0;                // 0: the launch is no attention
  int64_t heads = 1;                  // of q; a multiple of key_heads
  int64_t key_heads = 1;              // of k and v: heads / key_heads neighbours share one
  int64_t queries = 1;
  int64_t keys = 1;
  int64_t inner = 1;   // columns of q and k
  int64_t values = 1;  // columns of v and o
  std::array<Strides, kOperands> strides{};
  std::array<int, kOperands> tensors{-1, -1, -1, -1, -1, -1, -1, -1, -1};  // positions; -1: not in this pass

  auto operator<=>(const AttentionCall&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees one

  bool has(Operand operand) const { return backward || operand <= log_sums; }
  bool rows_are_queries(Operand operand) const {
    return operand != k && operand != v && operand != d_k && operand != d_v;
  }
};

}  // namespace millrace
