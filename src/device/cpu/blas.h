// Matrix products by the libraries: C = alpha · A·B, optionally plus D or with an epilogue of oneDNN, with loops around
// the product for batches and for contracted indices that one product cannot cover. OpenBLAS and BLIS multiply float16
// and bfloat16 as float32, rounded once; oneDNN and MKL have instructions for them on some processors. Test:
// tests/device/blas_test.cpp
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/stored_type.h"
#include "device/cpu/blas_library.h"
#include "device/cpu/gemm_blocks.h"
#include "device/cpu/gemm_loops.h"
#include "device/cpu/onednn_gemm.h"
#include "device/gemm_call.h"
#include "millrace/result.h"

namespace millrace {

// Why the library cannot compute it; empty if it can.
std::string why_not(const GemmCall& call);

// Bytes that a call needs besides its tensors: float32 copies of them for the half-sized types, or what oneDNN asks
// for. Only for calls that why_not accepts.
int64_t scratch_bytes(const GemmCall& call);

// Which types a library multiplies on this machine, as text.
std::string abilities_of(GemmLibrary library);

// A prepared call: everything that does not change between runs is computed. The libraries' thread counts belong to the
// process: concurrent runs by several threads of the program are correct, but one may use another's thread count.
class Gemm {
 public:
  static Result<Gemm> prepare(const GemmCall& call);

  // Overwrites the part of C that the call covers, without reading it. `scratch` has scratch_bytes and malloc's
  // alignment, or is null if that is 0. `added`: D, if the call adds; `bias`: V, if it has one. No two of A, B or D, V,
  // C and scratch overlap.
  void run(double alpha, const void* a, const void* b, void* c, void* scratch, const void* added = nullptr,
           const void* bias = nullptr) const;

 private:
  struct Placed {  // a matrix in memory
    int64_t row_stride = 1;
    int64_t column_stride = 1;
    int transpose = kCblasNoTranspose;
    int leading() const { return static_cast<int>(row_stride > column_stride ? row_stride : column_stride); }
  };

  explicit Gemm(const GemmCall& call);
  // Element: Real, or the bits of a half.
  template <class Element, class Real>
  void multiply(Real alpha, const Element* a, const Element* b, Real* c) const;
  // The loops over a block of C, from the outermost to the innermost: all iterations, those that add to the same part
  // of C, and one product.
  template <class Element, class Real>
  void multiply_in(const GemmBlock& block, Real alpha, const Element* a, const Element* b, Real* c) const;
  template <class Element, class Real>
  void multiply_at(int64_t outer, const GemmBlock& block, Real alpha, const Element* a, const Element* b,
                   Real* c) const;
  template <class Element, class Real>
  void product(const GemmBlock& block, Real alpha, const Element* a, const Element* b, Real beta, Real* c) const;
  void set_threads(int threads) const;
  bool threads_over_blocks() const;
  template <class Function, class Element, class Real>
  void product_by_cblas(Function gemm, Real alpha, const Element* a, const Element* b, Real beta, Real* c) const;
  void multiply_halves(float alpha, const void* a, const void* b, void* c, float* scratch, const void* added) const;
  void copy(const void* from, void* to) const;

  GemmLibrary library_;
  StoredType type_;
  int threads_;
  bool threads_over_loops_;
  bool adds_;
  // Whether the operands of the product are swapped for the library: with a column-major C, OpenBLAS and MKL compute Cᵀ
  // = Bᵀ·Aᵀ.
  bool swapped_ = false;
  int64_t m_;
  int64_t n_;
  int64_t k_;
  Placed a_;
  Placed b_;
  Placed c_;
  Cblas cblas_;  // OpenBLAS's or MKL's
  Blis blis_;
  std::optional<OneDnnGemm> onednn_;  // computes everything, if the library is oneDNN
  SplitLoops loops_;
  int64_t a_first_ = 0;
  int64_t b_first_ = 0;
  int64_t a_elements_;
  int64_t b_elements_;
  int64_t c_elements_;
};

// Prepares and runs, for callers that do it once.
Result<Done> run_gemm(const GemmCall& call, double alpha, const void* a, const void* b, void* c, void* scratch,
                      const void* added = nullptr, const void* bias = nullptr);

}  // namespace millrace
