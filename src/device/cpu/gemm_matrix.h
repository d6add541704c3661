// The matrices of a product in memory, as row-major libraries see them. Test: tests/device/blas_test.cpp
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "device/gemm_call.h"

namespace millrace {

// `rows` and `columns` are extents; the strides are from one row or column to the next.
struct GemmMatrix {
  std::string_view name;
  int64_t rows;
  int64_t columns;
  int64_t row_stride;
  int64_t column_stride;

  // Whether the elements of a row are closer together than those of a column.
  bool by_rows() const { return column_stride <= row_stride; }
  int64_t inner_extent() const { return by_rows() ? columns : rows; }
  int64_t inner_stride() const { return std::min(row_stride, column_stride); }
  int64_t outer_stride() const { return std::max(row_stride, column_stride); }
  GemmMatrix transposed() const { return {name, columns, rows, column_stride, row_stride}; }
};

// A stride along an extent of 1 has no meaning: picks one that makes the other the leading dimension, or else a unit
// stride.
inline GemmMatrix with_free_strides(GemmMatrix matrix) {
  const auto free = [](int64_t extent, int64_t stride) { return stride > 1 ? 1 : extent; };
  if (matrix.rows == 1 && matrix.columns == 1) matrix.column_stride = 1;
  if (matrix.rows == 1) {
    matrix.row_stride = free(matrix.columns, matrix.column_stride);
  } else if (matrix.columns == 1) {
    matrix.column_stride = free(matrix.rows, matrix.row_stride);
  }
  return matrix;
}

struct GemmMatrices {
  GemmMatrix a;
  GemmMatrix b;
  GemmMatrix c;
  bool swapped = false;  // Cᵀ = Bᵀ·Aᵀ
};

inline GemmMatrices matrices_of(const GemmCall& call) {
  return {with_free_strides({"A", call.m, call.k, call.a_m, call.a_k}),
          with_free_strides({"B", call.k, call.n, call.b_k, call.b_n}),
          with_free_strides({"C", call.m, call.n, call.c_m, call.c_n})};
}

// For libraries that write rows: with a column-major C, they compute Cᵀ = Bᵀ·Aᵀ.
inline GemmMatrices row_major(const GemmMatrices& given) {
  if (given.c.by_rows()) return given;
  return {given.b.transposed(), given.a.transposed(), given.c.transposed(), true};
}

}  // namespace millrace
