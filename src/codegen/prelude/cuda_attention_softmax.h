// Fused attention: the online softmax.
// Test: tests/codegen/attention_kernel_test.cpp
#pragma once

namespace mr {

// Reduces a row of scores, whose elements are in four threads.
template <class Operation>
MR_DEVICE float reduce_row(float x) {
  x = Operation::of(x, shuffle_xor(x, 1));
  return Operation::of(x, shuffle_xor(x, 2));
}

// Softmax over the tiles seen so far: the row maximum, and each thread's own share of the sum relative to it.
template <class S>
struct OnlineSoftmax {
  float row_max[S::kRowTiles][2];
  float row_sum[S::kRowTiles][2];

  MR_DEVICE OnlineSoftmax() {
    MR_UNROLL
    for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile) {
      MR_UNROLL
      for (int half = 0; half < 2; ++half) {
        row_max[row_tile][half] = -infinity();
        row_sum[row_tile][half] = 0;
      }
    }
  }

  // Replaces scores by exponentials relative to the new maximum, and rescales the sum. `rescale`: what rows summed
  // before must be multiplied by.
  template <int kCount>
  MR_DEVICE void exponentiate(float (&scores)[S::kRowTiles][kCount][4], float (&rescale)[S::kRowTiles][2],
                              float scale_log2) {
    MR_UNROLL
    for (int row_tile = 0; row_tile < S::kRowTiles; ++row_tile) {
      MR_UNROLL
      for (int half = 0; half < 2; ++half) {
        float new_max = scores[row_tile][0][2 * half];
        MR_UNROLL
        for (int n = 0; n < kCount; ++n)
          new_max = larger_of(larger_of(new_max, scores[row_tile][n][2 * half]), scores[row_tile][n][2 * half + 1]);
        new_max = larger_of(row_max[row_tile][half], reduce_row<Largest>(new_max) * scale_log2);
        // If every score so far is hidden, exponentials are relative to 0: -inf less -inf would be NaN.
        const float reference = S::kMayHideTiles && new_max == -infinity() ? 0.0f : new_max;
        rescale[row_tile][half] = exp2_approx(row_max[row_tile][half] - reference);
        row_max[row_tile][half] = new_max;
        float sum = row_sum[row_tile][half] * rescale[row_tile][half];
        MR_UNROLL
        for (int n = 0; n < kCount; ++n) {
          MR_UNROLL
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            scores[row_tile][n][e] = exp2_approx(scores[row_tile][n][e] * scale_log2 - reference);
            sum += scores[row_tile][n][e];
          }
        }
        row_sum[row_tile][half] = sum;
      }
    }
  }
};

template <int kRowTiles, int kCount>
MR_DEVICE void rescale_rows(float (&acc)[kRowTiles][kCount][4], const float (&rescale)[kRowTiles][2]) {
  MR_UNROLL
  for (int n = 0; n < kRowTiles * kCount * 4; ++n)
    acc[n / 4 / kCount][n / 4 % kCount][n % 4] *= rescale[n / 4 / kCount][n % 4 / 2];
}

}  // namespace mr
