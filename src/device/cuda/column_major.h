// Expresses a product of matrices with any strides in cuBLASLt's terms: all matrices column-major, A and B transposed
// or not. Pure arithmetic. Test: tests/device/cuda/column_major_test.cpp
#pragma once

#include <array>
#include <cstdint>

#include "device/gemm_call.h"
#include "millrace/result.h"

namespace millrace {

// As stored: element (row, column) is at row + column * leading.
struct ColumnMajor {
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t leading = 1;       // at least `rows`
  bool transposed = false;   // the product uses its transpose
  int64_t batch_stride = 0;  // elements
  int64_t pointer_alignment =
      1;                  // bytes that every matrix's address is a multiple of, if the first one's is a multiple of 16
  int64_t alignment = 1;  // the same for every column's address
};

// The vector of a call in the library's terms.
enum class ColumnVector {
  none,
  bias,           // one element per row of `c`
  gradient_of_a,  // sums of `a` along k: one element per row of `c`
  gradient_of_b,  // sums of `b` along k: one element per column of `c`
};

struct ColumnMajorProduct {
  // True: computes C^T = B^T A^T: `a` is the call's B, and `b` its A.
  bool swapped = false;
  int64_t batch = 1;
  ColumnMajor a;
  ColumnMajor b;
  ColumnMajor c;  // never transposed; the auxiliary matrix has the same layout
  ColumnVector vector = ColumnVector::none;
  int64_t vector_batch_stride = 0;  // elements
  int64_t vector_alignment =
      1;  // bytes that every vector's address is a multiple of, if the first one's is a multiple of 16
};

// Fails with the reason if the call is not a single product: no stride is 1, a loop sums, there are several loops, its
// vector runs along the wrong index, or the library does not accept the layout of its auxiliary matrix.
Result<ColumnMajorProduct> column_major(const GemmCall& call);

}  // namespace millrace
