// The BLAS libraries, loaded on first use, so that Millrace builds and runs without them. Their headers are not needed:
// the few functions used are declared here. Test: tests/device/blas_test.cpp
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/gemm_call.h"

namespace millrace {

std::string_view name_of(GemmLibrary library);

struct BlasInfo {
  bool there = false;
  std::string version;  // as the library reports it
  std::string path;     // the file that was loaded
  std::string missing;  // why it is missing, with the remedy
};

const BlasInfo& blas_info(GemmLibrary library);

// An environment variable with the file of MKL to load, instead of the one that the linker finds.
inline constexpr const char* kMklVariable = "MILLRACE_MKL";

// C's interface to BLAS, which OpenBLAS and MKL have.
template <class Real>
using CblasGemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, Real alpha, const Real* a,
                           int lda, const Real* b, int ldb, Real beta, Real* c, int ldc);
inline constexpr int kCblasRowMajor = 101;
inline constexpr int kCblasNoTranspose = 111;
inline constexpr int kCblasTranspose = 112;

// Halves as their bits, multiplied exactly and summed in float32. Only MKL has it.
using CblasHalfGemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                               const uint16_t* a, int lda, const uint16_t* b, int ldb, float beta, float* c, int ldc);

struct Cblas {
  CblasGemm<float> sgemm = nullptr;
  CblasGemm<double> dgemm = nullptr;
  // Null in versions without them.
  CblasHalfGemm bf16_gemm = nullptr;
  CblasHalfGemm f16_gemm = nullptr;
  // Sets the number of threads for the calling thread, and returns the previous number; 0: as many as OpenMP would use.
  // Only MKL has it.
  int (*set_num_threads_local)(int threads) = nullptr;
};

// BLIS declares parameters that it only reads without const, hence the pointers to non-const values.
template <class Real>
using BlisGemm = void (*)(int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, Real* alpha, Real* a,
                          int64_t a_rows, int64_t a_columns, Real* b, int64_t b_rows, int64_t b_columns, Real* beta,
                          Real* c, int64_t c_rows, int64_t c_columns);
inline constexpr int kBlisNoTranspose = 0;

struct Blis {
  BlisGemm<float> sgemm = nullptr;
  BlisGemm<double> dgemm = nullptr;
  // Up to 0.9 for the whole process, later for the calling thread.
  void (*set_num_threads)(int64_t threads) = nullptr;
};

// Contains null pointers unless blas_info reports the library as present.
const Cblas& openblas();
const Cblas& mkl();
const Blis& blis();

}  // namespace millrace
