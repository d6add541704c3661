#include "device/cpu/onednn_gemm.h"

#include <string>
#include <utility>

#include "base/text.h"
#include "device/cpu/gemm_matrix.h"
#include "device/cpu/openmp_settings.h"

namespace millrace {
namespace {

OneDnnMatrix onednn_matrix(const GemmMatrix& matrix) {
  return {matrix.rows, matrix.columns, matrix.row_stride, matrix.column_stride};
}

OneDnnProduct onednn_product(const GemmCall& call) {
  const GemmMatrices matrices = row_major(matrices_of(call));
  return {call.type,
          onednn_matrix(matrices.a),
          onednn_matrix(matrices.b),
          onednn_matrix(matrices.c),
          call.scaled,
          call.adds,
          call.vector == GemmVector::bias,
          call.activation,
          call.threads_over_loops ? 1 : call.threads};
}

}  // namespace

Result<OneDnnGemm> OneDnnGemm::prepare(const GemmCall& call) {
  auto matmul = OneDnnMatmul::make(onednn_product(call));
  if (matmul) return OneDnnGemm(call, *matmul);
  return Error::make(ErrorKind::unavailable, concat("matrix product by oneDNN: ", matmul.reason()),
                     "use another library: run millrace optimize again on this machine");
}

OneDnnGemm::OneDnnGemm(const GemmCall& call, std::shared_ptr<const OneDnnMatmul> matmul)
    : matmul_(std::move(matmul)),
      swapped_(row_major(matrices_of(call)).swapped),
      threads_over_loops_(call.threads_over_loops),
      threads_(call.threads),
      element_bytes_(bytes_of(call.type)),
      a_first_(call.a_first),
      b_first_(call.b_first) {
  loops_ = split_loops(call, swapped_);
}

// If each thread runs products of its own, each needs scratch memory of its own.
int64_t OneDnnGemm::scratch_bytes() const { return matmul_->scratch_bytes() * (threads_over_loops_ ? threads_ : 1); }

void OneDnnGemm::run_at(int64_t outer, OneDnnCall& call, const char* a, const char* b, char* c, const char* added,
                        const char* bias) const {
  const GemmOffsets at = loops_.outer.at(outer);
  call.run(a + at.a * element_bytes_, b + at.b * element_bytes_, c + at.c * element_bytes_,
           added == nullptr ? nullptr : added + at.c * element_bytes_,
           bias == nullptr ? nullptr : bias + at.v * element_bytes_);
}

void OneDnnGemm::run(float factor, const void* a, const void* b, void* c, void* scratch, const void* added,
                     const void* bias) const {
  const char* left = static_cast<const char*>(a) + a_first_ * element_bytes_;
  const char* right = static_cast<const char*>(b) + b_first_ * element_bytes_;
  if (swapped_) std::swap(left, right);
  auto* const result = static_cast<char*>(c);
  const auto* const addend = static_cast<const char*>(added);
  const auto* const vector = static_cast<const char*>(bias);
  auto* const space = static_cast<char*>(scratch);
  if (!threads_over_loops_) {
    omp_set_num_threads(threads_);
    OneDnnCall call(*matmul_, factor, space);
    for (int64_t outer = 0; outer < loops_.outer.steps(); ++outer)
      run_at(outer, call, left, right, result, addend, vector);
    return;
  }
#pragma omp parallel num_threads(threads_)
  {
    omp_set_num_threads(1);  // applies within this region
    OneDnnCall call(*matmul_, factor, space + omp_get_thread_num() * matmul_->scratch_bytes());
#pragma omp for schedule(static)
    for (int64_t outer = 0; outer < loops_.outer.steps(); ++outer)
      run_at(outer, call, left, right, result, addend, vector);
  }
}

}  // namespace millrace
