// A product of matrices of any strides as cuBLASLt is asked for it: all matrices column-major, A and B transposed or
// not. Pure arithmetic. Test: tests/device/cuda/column_major_test.cpp
#pragma once

#include <array>
#include <cstdint>

#include "device/gemm_call.h"
#include "millrace/result.h"

namespace millrace {

// As it lies in memory: element (row, column) at row + column * leading.
struct ColumnMajor {
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t leading = 1;            // at least `rows`
  bool transposed = false;        // what is multiplied is its transpose
  int64_t batch_stride = 0;       // elements
  int64_t pointer_alignment = 1;  // bytes that every matrix's address is a multiple of, if the first one's is of 16
  int64_t alignment = 1;          // the same of every column's address
};

// The vector of a call as the library means it.
enum class ColumnVector {
  none,
  bias,           // one element a row of `c`
  gradient_of_a,  // sums of `a` along k: one element a row of `c`
  gradient_of_b,  // sums of `b` along k: one element a column of `c`
};

struct ColumnMajorProduct {
  // Computed is C^T = B^T A^T: `a` is the call's B, and `b` its A.
  bool swapped = false;
  int64_t batch = 1;
  ColumnMajor a;
  ColumnMajor b;
  ColumnMajor c;  // never transposed; the auxiliary matrix lies so too
  ColumnVector vector = ColumnVector::none;
  int64_t vector_batch_stride = 0;  // elements
  int64_t vector_alignment = 1;     // bytes that every vector's address is a multiple of, if the first one's is of 16
};

// Or why the call is not one product: no stride is 1, it sums over a loop, it has several loops, its vector runs along
// the wrong index, its auxiliary matrix lies as the library does not take it.
Result<ColumnMajorProduct> column_major(const GemmCall& call);

}  // namespace millrace
