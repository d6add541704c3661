// Fused attention on the CPU: products of matrices in the caches. A block of the result stays in registers while the
// contracted index runs. Test: tests/codegen/cpu_attention_test.cpp
#pragma once

namespace mr {

// How the left operand is stored: a[row][k], or a[k][row].
enum class Left { rows, columns };
// Whether the product replaces the result or is added to it.
enum class Result { replace, add };

constexpr i64 kRowStep = 8;                            // rows of a product are a multiple of this
constexpr int kMostVectors = kRegisters == 1 ? 4 : 1;  // of a block; a vector is several narrow registers

// A block of kRows rows and kVectors vectors of columns.
template <int kRows, int kVectors, Left kLeft, Result kResult>
MR_INLINE void multiply_block(float* __restrict c, i64 c_row, const float* __restrict a, i64 a_line,
                              const float* __restrict b, i64 b_line, i64 depth) {
  VecF sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = kResult == Result::add ? from_lanes(c + r * c_row + v * kLanes<float>) : splat<VecF>(0);
  }
  for (i64 k = 0; k < depth; ++k) {
    VecF right[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) right[v] = from_lanes(b + k * b_line + v * kLanes<float>);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const VecF left = splat<VecF>(kLeft == Left::rows ? a[r * a_line + k] : a[k * a_line + r]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[r][v] = sums[r][v] + left * right[v];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) to_lanes(c + r * c_row + v * kLanes<float>, sums[r][v]);
  }
}

// As many rows as fit the registers beside the right operand's vectors.
template <int kVectors>
constexpr int kRowsOfBlock = kRegisters > 1  ? 4
                             : kVectors >= 4 ? 4
                                             : 8;

template <int kVectors, Left kLeft, Result kResult>
MR_INLINE void multiply_columns(float* c, i64 c_row, const float* a, i64 a_line, const float* b, i64 b_line, i64 rows,
                                i64 depth) {
  constexpr int kRows = kRowsOfBlock<kVectors>;
  for (i64 r = 0; r < rows; r += kRows)
    multiply_block<kRows, kVectors, kLeft, kResult>(c + r * c_row, c_row, kLeft == Left::rows ? a + r * a_line : a + r,
                                                    a_line, b, b_line, depth);
}

// c[rows][columns] = (or +=) a · b, where b is b[k][column]. Rows are a multiple of kRowStep, columns of a vector.
template <Left kLeft, Result kResult>
__attribute__((noinline)) void multiply(float* c, i64 c_row, const float* a, i64 a_line, const float* b, i64 b_line,
                                        i64 rows, i64 columns, i64 depth) {
  for (i64 left = columns / kLanes<float>; left > 0;) {
    // Five vectors are split into three and two: a single one would wait for its own sums.
    const i64 some = kMostVectors == 1 ? 1 : left == 5 ? 3 : least(left, kMostVectors);
    if constexpr (kMostVectors == 1) {
      multiply_columns<1, kLeft, kResult>(c, c_row, a, a_line, b, b_line, rows, depth);
    } else {
      switch (some) {
        case 1: multiply_columns<1, kLeft, kResult>(c, c_row, a, a_line, b, b_line, rows, depth); break;
        case 2: multiply_columns<2, kLeft, kResult>(c, c_row, a, a_line, b, b_line, rows, depth); break;
        case 3: multiply_columns<3, kLeft, kResult>(c, c_row, a, a_line, b, b_line, rows, depth); break;
        default: multiply_columns<4, kLeft, kResult>(c, c_row, a, a_line, b, b_line, rows, depth); break;
      }
    }
    left -= some;
    c += some * kLanes<float>;
    b += some * kLanes<float>;
  }
}

}  // namespace mr
