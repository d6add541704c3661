// Fused attention on the CPU: what all its passes share. A pass computes a tile of scores, some queries by some keys,
// in float32, and leaves it in a core's cache. cpu_attention_*.h have one idea each: the matrices of a head (here),
// products, scores, and the passes. Test: tests/codegen/cpu_attention_test.cpp
//
// The generator writes a struct S with constants:
// - T, the type of the operands;
// - Q, K, Dq, Dk: how a head's q and k are read, and its d_q and d_k written: Matrix, or computed rows;
// - kQueries, kKeys, kInner, kValues, and kHeads, the heads that share keys and values;
// - kTileQueries, kTileKeys, multiples of kTileStep;
// - kFirst, kLast: a query sees the keys from query + kFirst to query + kLast;
// - kDropout, kMaskBits (forward stores the mask as bits), kMaskQuery and kMaskKey (elements of the mask between
//   neighbours), kMaskBytes (from query to query in the bits);
// - kSplits: the threads that share the keys of a group of heads in backward.
#pragma once

namespace mr {

constexpr i64 kTileStep = 64;

MR_INLINE constexpr i64 round_up(i64 x, i64 step) { return (x + step - 1) / step * step; }
MR_INLINE constexpr i64 least(i64 a, i64 b) { return a < b ? a : b; }
MR_INLINE constexpr i64 greatest(i64 a, i64 b) { return a > b ? a : b; }

// Columns in packed memory: whole vectors, the last one filled with zeros.
template <class S>
constexpr i64 kInnerPacked = round_up(S::kInner, kLanes<float>);
template <class S>
constexpr i64 kValuesPacked = round_up(S::kValues, kLanes<float>);
// Rows in packed memory.
template <class S>
constexpr i64 kQueriesPacked = round_up(S::kQueries, S::kTileQueries);
template <class S>
constexpr i64 kKeysPacked = round_up(S::kKeys, S::kTileKeys);

// A matrix of one head in memory: elements between neighbouring rows, and between neighbouring columns.
template <class T>
struct Matrix {
  T* data;
  i64 row;
  i64 column;

  MR_INLINE T* at(i64 r, i64 c = 0) const { return data + r * row + c * column; }
};

// Part of scratch memory: takes floats, aligned to a cache line.
struct ScratchFloats {
  char* at;

  MR_INLINE float* take(i64 count) {
    float* const taken = reinterpret_cast<float*>(at);
    at += round_up(count * i64(sizeof(float)), kBytes);
    return taken;
  }
};

MR_INLINE void clear(float* to, i64 count) { __builtin_memset(to, 0, u64(count) * sizeof(float)); }

// to[r][c] = rows of the matrix from `first` on, as float; the rest of `packed_rows` by `packed_columns` is zero.
template <class T>
__attribute__((noinline)) void pack_rows(float* __restrict to, i64 packed_rows, i64 packed_columns,
                                         const Matrix<const T>& from, i64 first, i64 rows, i64 columns) {
  for (i64 r = 0; r < rows; ++r) {
    float* __restrict own = to + r * packed_columns;
    const T* __restrict row = from.at(first + r);
    if (from.column == 1) {
      for (i64 c = 0; c < columns; ++c) own[c] = widen(row[c]);
    } else if (from.row != 1) {
      for (i64 c = 0; c < columns; ++c) own[c] = widen(row[c * from.column]);
    }
    for (i64 c = columns; c < packed_columns; ++c) own[c] = 0;
  }
  if (from.column != 1 && from.row == 1) {
    for (i64 c = 0; c < columns; ++c) {
      const T* __restrict column = from.at(first, c);
      for (i64 r = 0; r < rows; ++r) to[r * packed_columns + c] = widen(column[r]);
    }
  }
  clear(to + rows * packed_columns, (packed_rows - rows) * packed_columns);
}

// to[c][r]: the same transposed; the rest of `packed_rows` is zero.
template <class T>
__attribute__((noinline)) void pack_columns(float* __restrict to, i64 packed_rows, const Matrix<const T>& from,
                                            i64 first, i64 rows, i64 columns) {
  constexpr i64 kBlock = kLanes<float>;
  for (i64 r = 0; r < rows; r += kBlock) {
    const i64 some = least(kBlock, rows - r);
    for (i64 c = 0; c < columns; ++c) {
      float lanes[kBlock] = {};
      const T* __restrict column = from.at(first + r, c);
      for (i64 l = 0; l < some; ++l) lanes[l] = widen(column[l * from.row]);
      __builtin_memcpy(to + c * packed_rows + r, lanes, sizeof(lanes));
    }
  }
  const i64 filled = round_up(rows, kBlock);
  for (i64 c = 0; c < columns && filled < packed_rows; ++c) clear(to + c * packed_rows + filled, packed_rows - filled);
}

// Writes rows of the matrix from `first` on.
template <class T>
__attribute__((noinline)) void store_rows(const Matrix<T>& to, i64 first, i64 rows, i64 columns,
                                          const float* __restrict from, i64 packed_columns) {
  for (i64 r = 0; r < rows && (to.column == 1 || to.row != 1); ++r) {
    T* __restrict row = to.at(first + r);
    const float* __restrict own = from + r * packed_columns;
    if (to.column == 1) {
      for (i64 c = 0; c < columns; ++c) row[c] = narrow<T>(own[c]);
    } else {
      for (i64 c = 0; c < columns; ++c) row[c * to.column] = narrow<T>(own[c]);
    }
  }
  if (to.column == 1 || to.row != 1) return;
  for (i64 c = 0; c < columns; ++c) {
    T* __restrict column = to.at(first, c);
    for (i64 r = 0; r < rows; ++r) column[r] = narrow<T>(from[r * packed_columns + c]);
  }
}

}  // namespace mr
