// Fused attention on tensor cores, and its gradients. This file: how it works, thread ids, operands. The other
// cuda_attention_*.h follow it in the source of a kernel, in the order of CMakeLists.txt; cuda_matrices.h precedes it.
// Test: tests/codegen/attention_kernel_test.cpp
//
// `S` is the struct of sizes that codegen/cuda/attention.cpp writes: extents, the AttentionConfig, types. Strides are
// arguments of a launch: kernels compile slowly, and one kernel serves all layouts whose matrices have the same Order.
//
// Shapes, for each head, with kInner and kValues padded to multiples of 16: q and d_q are kQueries x kInner, k and d_k
// kKeys x kInner, v and d_v kKeys x kValues, o and d_o kQueries x kValues. The scores q · kᵀ exist only on chip.
//
// All kernels but the specialized ones (cuda_attention_roles.h) share one scheme. A warp owns kRowTiles tiles of 16
// rows of the scores and keeps the A operand of these rows. The block iterates over tiles of kTileColumns columns of
// the scores; the matching rows of the other operands are staged in smem for all warps. The accumulators of one product
// have the layout of an A fragment of the next, so scores never leave the registers. Warps exchange nothing but these
// tiles, and every sum has a fixed order: results are bitwise reproducible.
// - attention_forward: rows are queries; online softmax.
// - attention_backward_dq: rows are queries. Also stores the RowStats of every query for the next kernel.
// - attention_backward_dk_dv: rows are keys, columns are queries.
// - attention_backward_term: rows are queries; the gradient of a term of the scores, for a tile of keys.
// - attention_backward: d_q, d_k and d_v in one kernel, if a block's rows are all keys. Then the ds of a tile of
//   queries is complete in the block; it goes through smem, and ds · k is d_q.
//
// If rows are queries and k and v are row-major, the keys of a tile are permuted: of 32 keys, lane 4g + t holds the 8
// neighbours from 8t on, which are one Philox block. For this, key 8a + 2b + c is in row 8b + 2a + c of the tile.
// Col-major keys stay in order, and the four threads of a row exchange their draws.
//
// Rows of q and k may be computed from tensors in memory, and d_q and d_k stored after a computation
// (cuda_attention_computed.h). Then these operands are structs of the generator, not a Matrix.
//
// A negative scale negates the rows, so that a hidden score is -inf before and after scaling.
#pragma once

namespace mr {

MR_DEVICE int thread_id() { return assume_non_negative(thread_number()); }
MR_DEVICE int lane_id() { return thread_id() % 32; }
MR_DEVICE int warp_id() { return thread_id() / 32; }
// Position of a thread's elements in an accumulator: also row + 8, and column + 1.
MR_DEVICE int fragment_row() { return lane_id() / 4; }
MR_DEVICE int fragment_column() { return lane_id() % 4 * 2; }

template <class S>
MR_DEVICE int warp_first_row(int block) {
  return (block * S::kWarps + warp_id()) * S::kRowTiles * 16;
}

constexpr double kLog2E = 1.44269504088896340736;

// Scale of the scores for exp2. Never 0: 0 times the -inf of a hidden score would be NaN.
MR_DEVICE float to_scale_log2(double scale) {
  const float factor = static_cast<float>(scale < 0 ? -scale * kLog2E : scale * kLog2E);
  return factor < 1.17549435e-38f ? 1.17549435e-38f : factor;
}

// Decodes an integer that the host passes among the doubles as 2^52 + x: x is the mantissa. A conversion would be slow,
// and every thread needs several.
MR_DEVICE long long decode_integer(double x) { return bits_of(x) & ((1LL << 52) - 1); }

// Whether rows or columns are contiguous in memory.
enum class Order { row_major, col_major };

// One head of an operand. `pitch`: elements from row to row; if col_major, from column to column. It has kColumns
// columns; on chip, columns are padded with zeros to a multiple of 16.
template <class Element, class Index, Order kOwnOrder, int kOwnColumns>
struct Matrix {
  using E = Element;
  using I = Index;
  static constexpr Order kOrder = kOwnOrder;
  static constexpr int kColumns = kOwnColumns;
  static constexpr bool kComputed = false;  // its rows are in memory; cuda_attention_computed.h has others
  E* data;
  I pitch;

  // Whether it has a column of kPadded ones on chip. Known at compile time if none is padding.
  template <int kPadded>
  MR_DEVICE static bool has(int column) {
    return kColumns == kPadded || column < kColumns;
  }
  MR_DEVICE E* at(int row, int column) const { return advance(data, row, column); }
  // The element that is `rows` rows and `columns` columns after `from`.
  MR_DEVICE E* advance(E* from, int rows, int columns) const {
    if constexpr (kOrder == Order::row_major) return from + I(rows) * pitch + columns;
    return from + I(columns) * pitch + rows;
  }
};

// Takes the place of the matrix of a gradient that is not needed.
struct NoGradient {};

}  // namespace mr
