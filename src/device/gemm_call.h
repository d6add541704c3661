// A matrix product as a library is asked for it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/gemm_algorithm.h"
#include "base/stored_type.h"

namespace millrace {

enum class BlasLibrary { openblas, blis, cublaslt };

// A loop around the product; how far each tensor moves a step, in elements. With c = 0 its products are summed.
struct GemmLoop {
  int64_t extent = 1;
  int64_t a = 0;
  int64_t b = 0;
  int64_t c = 0;
};

// A is m × k, B is k × n, C is m × n. Strides are in elements.
struct GemmCall {
  BlasLibrary library = BlasLibrary::openblas;
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
  std::vector<GemmLoop> loops;  // outermost first
  // The threads share the steps of the loops that do not sum, a product on one thread; else they share each product.
  bool threads_over_loops = false;
  int threads = 1;
  // Of the whole tensors, which are dense.
  int64_t a_elements = 0;
  int64_t b_elements = 0;
  int64_t c_elements = 0;
  // cuBLASLt's. Its call has at most one loop, which does not sum.
  GemmAlgorithm algorithm;
  // Whether it may use Tensor Cores. Halves are multiplied exactly there, f32 is first rounded to TF32: whoever wants
  // exact f32 says false.
  bool tensor_cores = true;
};

}  // namespace millrace
