// A matrix product as a GEMM library receives it.
// Tests: tests/device/blas_test.cpp, tests/device/onednn_test.cpp, tests/device/cuda/column_major_test.cpp
#pragma once

#include <cstdint>
#include <vector>

#include "base/activation.h"
#include "base/gemm_algorithm.h"
#include "base/gemm_library.h"
#include "base/stored_type.h"

namespace millrace {

// A loop around the product, with the stride of each tensor per iteration, in elements. If c = 0, its products are
// summed.
struct GemmLoop {
  int64_t extent = 1;
  int64_t a = 0;
  int64_t b = 0;
  int64_t c = 0;
  int64_t v = 0;
};

// A vector V in addition to the matrices (a library's epilogue). The factor of the product does not apply to V.
enum class GemmVector {
  none,
  bias,           // read: C(i, j) = factor · Σ A(i, l) B(l, j) + V(i) or V(j), rounded once
  gradient_of_a,  // written: V(i) = Σ A(i, l)
  gradient_of_b,  // written: V(j) = Σ B(l, j)
};

// C = factor · A·B: A is m × k, B is k × n, C is m × n. Strides are in elements.
struct GemmCall {
  GemmLibrary library = GemmLibrary::openblas;
  StoredType type = StoredType::f32;  // of A, B and C: f64, f32, f16 or bf16
  int64_t m = 1;
  int64_t n = 1;
  int64_t k = 1;
  int64_t a_m = 0;
  int64_t a_k = 0;
  int64_t b_k = 0;
  int64_t b_n = 0;
  int64_t c_m = 0;
  int64_t c_n = 0;
  // The elements of A and B where all indices are zero.
  int64_t a_first = 0;
  int64_t b_first = 0;
  std::vector<GemmLoop> loops;  // outermost first
  // True: the threads share the iterations of the loops that do not sum, one product per thread. False: they share each
  // product.
  bool threads_over_loops = false;
  int threads = 1;
  // The numbers of elements of the whole tensors, which are dense.
  int64_t a_elements = 0;
  int64_t b_elements = 0;
  int64_t c_elements = 0;
  bool scaled = true;  // false: the factor is 1
  // C = factor · A·B + D, rounded once. D has the layout of C and does not overlap it. The call covers all of C.
  bool adds = false;
  // V runs along m or along n, with stride 1 there and 0 along the other. It has the type of C. oneDNN adds a bias;
  // cuBLASLt also computes gradients.
  GemmVector vector = GemmVector::none;
  int64_t v_m = 0;
  int64_t v_n = 0;
  int64_t v_elements = 0;
  // Applied to the result after the bias. oneDNN computes no gradients here, cuBLASLt no exact GELU.
  Activation activation = Activation::none;
  bool has_auxiliary = false;  // cuBLASLt only: its matrix, which has the layout of C and does not overlap it
  // cuBLASLt only. A call has at most one loop, which does not sum.
  GemmAlgorithm algorithm;
  // Whether tensor cores are allowed. They multiply halves exactly, but round f32 to TF32 first: callers that need
  // exact f32 pass false.
  bool tensor_cores = true;
};

}  // namespace millrace
