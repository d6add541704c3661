// A GemmCall by oneDNN: one product, or a loop over products that do not add up. Test: tests/device/onednn_test.cpp
#pragma once

#include <cstdint>
#include <memory>

#include "device/cpu/gemm_loops.h"
#include "device/cpu/onednn.h"
#include "device/gemm_call.h"
#include "millrace/result.h"

namespace millrace {

class OneDnnGemm {
 public:
  // For calls that why_not (blas.h) accepts. Fails if the library has no fast product of this shape.
  static Result<OneDnnGemm> prepare(const GemmCall& call);

  int64_t scratch_bytes() const;

  // As Gemm::run.
  void run(float factor, const void* a, const void* b, void* c, void* scratch, const void* added,
           const void* bias) const;

 private:
  OneDnnGemm(const GemmCall& call, std::shared_ptr<const OneDnnMatmul> matmul);
  void run_at(int64_t outer, OneDnnCall& call, const char* a, const char* b, char* c, const char* added,
              const char* bias) const;

  std::shared_ptr<const OneDnnMatmul> matmul_;
  SplitLoops loops_;
  bool swapped_;
  bool threads_over_loops_;
  int threads_;
  int64_t element_bytes_;
  int64_t a_first_;
  int64_t b_first_;
};

}  // namespace millrace
