// Fused attention on the CPU: rows of an operand that are not in memory, such as those of a rotary embedding. They are
// computed when the operand is packed, and gradients when they are stored. Test: tests/codegen/cpu_attention_test.cpp
//
// The generator writes a struct for each such operand: compute(row, to) writes a row as float; store(row, from) applies
// the computation to a gradient's row and writes the result to memory.
#pragma once

namespace mr {

// Floats `step` apart, from number `i` on; the lanes beyond `lanes` become 1.
MR_INLINE VecF row_lanes(const float* from, i64 step, i64 i, i64 lanes) {
  if (step == 1 && lanes >= kLanes<float>) return from_lanes(from + i);
  float values[kLanes<float>];
  for (i64 l = 0; l < kLanes<float>; ++l) values[l] = l < lanes ? from[(i + l) * step] : 1.0f;
  return from_lanes(values);
}

// One head of a tensor that rows are computed from: elements between rows, 0 if all rows have the same.
template <class T>
struct RowTerm {
  const T* data;
  i64 row;

  // Elements `step` apart, from number `i` on; the lanes beyond `lanes` become 1.
  MR_INLINE VecF at(i64 number, i64 offset, i64 step, i64 i, i64 lanes) const {
    const T* const first = data + number * row + offset + i * step;
    if (step == 1 && lanes >= kLanes<float>) return load<VecF, Lanes<kLanes<float>>, 1>(first);
    if (step == 0) return splat<VecF>(float(widen(*first)));
    float values[kLanes<float>];
    for (i64 l = 0; l < kLanes<float>; ++l) values[l] = l < lanes ? float(widen(first[l * step])) : 1.0f;
    return from_lanes(values);
  }
};

// Writes the first `lanes` elements, `step` apart.
template <class T>
MR_INLINE void store_row_lanes(T* to, i64 step, VecF x, i64 lanes) {
  if (step == 1 && lanes >= kLanes<float>) return store<Lanes<kLanes<float>>, 1>(to, x);
  float values[kLanes<float>];
  to_lanes(values, x);
  for (i64 l = 0; l < least(lanes, kLanes<float>); ++l) to[l * step] = narrow<T>(values[l]);
}

// The functions of cpu_attention.h for computed rows.
template <class Rows>
__attribute__((noinline)) void pack_rows(float* __restrict to, i64 packed_rows, i64 packed_columns, const Rows& from,
                                         i64 first, i64 rows, i64 columns) {
  for (i64 r = 0; r < rows; ++r) {
    float* const own = to + r * packed_columns;
    from.compute(first + r, own);
    clear(own + columns, packed_columns - columns);
  }
  clear(to + rows * packed_columns, (packed_rows - rows) * packed_columns);
}

template <class Rows>
__attribute__((noinline)) void pack_columns(float* __restrict to, i64 packed_rows, const Rows& from, i64 first,
                                            i64 rows, i64 columns) {
  constexpr i64 kBlock = kLanes<float>;
  float block[kBlock][Rows::kColumns];
  for (i64 r = 0; r < packed_rows; r += kBlock) {
    for (i64 l = 0; l < kBlock; ++l) {
      if (r + l < rows)
        from.compute(first + r + l, block[l]);
      else
        clear(block[l], columns);
    }
    for (i64 c = 0; c < columns; ++c) {
      float lanes[kBlock];
      for (i64 l = 0; l < kBlock; ++l) lanes[l] = block[l][c];
      __builtin_memcpy(to + c * packed_rows + r, lanes, sizeof(lanes));
    }
  }
}

template <class Rows>
__attribute__((noinline)) void store_rows(const Rows& to, i64 first, i64 rows, i64 /*columns*/,
                                          const float* __restrict from, i64 packed_columns) {
  for (i64 r = 0; r < rows; ++r) to.store(first + r, from + r * packed_columns);
}

}  // namespace mr
