// What each library requires of a product's strides, types and epilogue. Test:
// tests/candidates/gemm_configs_test.cpp
#pragma once

#include <vector>

#include "base/gemm_library.h"
#include "candidates/enumerate.h"
#include "candidates/product_strides.h"

namespace millrace {

// One call of a library, or a loop over calls.
struct GemmShape {
  GemmChains chains;
  std::vector<int> loops;    // indices outside the matrices
  bool unit_strides = true;  // every matrix has an index of stride 1
};

class GemmConditions {
 public:
  // The arguments must outlive it.
  GemmConditions(const Graph& graph, const EnumerateOptions& options, const Product& product,
                 const ProductStrides& strides);

  // Why the library cannot compute it; null if it can.
  const char* why_rejected(GemmLibrary library, const GemmShape& shape) const;

 private:
  const char* why_cpu_library(GemmLibrary library, const GemmShape& shape) const;
  const char* why_cpu_epilogue(GemmLibrary library, const GemmChains& chains) const;
  const char* why_cublaslt(const GemmShape& shape) const;
  const char* why_cublaslt_vector(const GemmChains& chains, const std::vector<int>& batch) const;
  bool can_be_auxiliary(const GemmChains& chains, const std::vector<int>& batch) const;
  bool is_summed(const std::vector<int>& loops) const;

  const EnumerateOptions& options_;
  const Product& product_;
  const ProductStrides& strides_;
  StoredType type_;  // of the result
};

}  // namespace millrace
