// cuBLASLt: matrix products on the GPU, each by one of the library's algorithms.
// Test: tests/device/cuda/cuda_gpu_test.cpp
#pragma once

#include <cublasLt.h>

#include <memory>
#include <type_traits>
#include <vector>

#include "device/cuda/column_major.h"
#include "device/cuda/context.h"
#include "device/gpu.h"

namespace millrace {

// The workspace that an algorithm may request.
inline constexpr int64_t kLargestWorkspace = int64_t{32} << 20;

// The alignment of a bias, or of its gradient: the library has no preference for it, and its kernels read 16 bytes at
// once.
inline constexpr int64_t kVectorAlignment = 16;

struct CublasLt {
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtGetStatusName) get_status_name = nullptr;
  decltype(&cublasLtGetStatusString) get_status_string = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) algo_get_heuristic = nullptr;
  decltype(&cublasLtMatmulAlgoGetIds) algo_get_ids = nullptr;
  decltype(&cublasLtMatmulAlgoInit) algo_init = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) algo_check = nullptr;
  decltype(&cublasLtMatmulAlgoCapGetAttribute) algo_cap_get = nullptr;
  decltype(&cublasLtMatmulAlgoConfigSetAttribute) algo_config_set = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algo_config_get = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;

  Result<Done> check(cublasStatus_t status, const std::string& what) const;
  std::string version() const;  // "13.1.0"
};

// Loaded once; unavailable if it is missing.
Result<const CublasLt*> cublaslt_library();
GpuSoftware inspect_cublaslt();

// A library handle that keeps its context alive.
Result<std::shared_ptr<cublasLtContext>> open_cublaslt(const CublasLt& library,
                                                       const std::shared_ptr<CudaContext>& context);

// The library's descriptors of one product. Must be made and used while the GPU's context is current.
class CublasLtProduct {
 public:
  static Result<CublasLtProduct> make(const CublasLt& library, std::shared_ptr<cublasLtContext> handle,
                                      const GemmCall& call);

  const ColumnMajorProduct& shape() const { return shape_; }
  int64_t k() const { return k_; }
  bool tensor_cores() const { return tensor_cores_; }
  // Bits of cublasLtReductionScheme_t that this product may use.
  uint32_t reductions() const { return reductions_; }

  // ---- Algorithms ----

  Result<std::vector<int>> algorithm_ids() const;
  // An algorithm without attributes; fails if the library has none with that number for these types.
  Result<cublasLtMatmulAlgo_t> initialised(int id) const;
  // The algorithm with all attributes. Fails if the library does not know one of them.
  Result<cublasLtMatmulAlgo_t> configured(const GemmAlgorithm& algorithm) const;
  // Whether it can compute this product with a workspace of at most kLargestWorkspace.
  bool admits(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulHeuristicResult_t& result) const;
  // The heuristic's choices, best first, at most `count`; may be empty.
  Result<std::vector<cublasLtMatmulHeuristicResult_t>> heuristic(int count) const;
  GemmAlgorithm attributes(const cublasLtMatmulAlgo_t& algorithm) const;
  // A numeric capability of the algorithm; `otherwise` if the library does not report it.
  template <class Number>
  Number capability(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoCapAttributes_t which,
                    Number otherwise) const {
    static_assert(std::is_integral_v<Number>);
    Number value = 0;
    size_t written = 0;
    const cublasStatus_t status = library_->algo_cap_get(&algorithm, which, &value, sizeof(value), &written);
    return status == CUBLAS_STATUS_SUCCESS && written == sizeof(value) ? value : otherwise;
  }
  std::vector<uint32_t> capabilities(const cublasLtMatmulAlgo_t& algorithm,
                                     cublasLtMatmulAlgoCapAttributes_t which) const;

  // ---- Running ----

  // The call's matrices. Those that it does not have are null.
  struct Operands {
    const void* a = nullptr;
    const void* b = nullptr;
    const void* added = nullptr;
    void* c = nullptr;
    const void* vector = nullptr;  // aligned to kVectorAlignment
    const void* auxiliary = nullptr;
  };

  // C = alpha A B, plus `added` if the call adds.
  Result<Done> multiply(double alpha, const Operands& operands, const cublasLtMatmulAlgo_t& algorithm, void* workspace,
                        size_t workspace_bytes, void* stream) const;

 private:
  struct Destroy {
    const CublasLt* library;
    void operator()(cublasLtMatrixLayoutOpaque_t* layout) const { library->layout_destroy(layout); }
    void operator()(cublasLtMatmulDescOpaque_t* desc) const { library->desc_destroy(desc); }
    void operator()(cublasLtMatmulPreferenceOpaque_t* preference) const { library->preference_destroy(preference); }
  };
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy>;
  using Desc = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy>;
  using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy>;

  CublasLtProduct(const CublasLt& library, std::shared_ptr<cublasLtContext> handle, ColumnMajorProduct shape)
      : library_(&library), handle_(std::move(handle)), shape_(shape) {}

  Result<Done> set_types(const GemmCall& call);
  Result<Done> make_desc();
  Result<Done> set_epilogue();
  cublasLtEpilogue_t epilogue() const;
  Result<Done> set_pointer(cublasLtMatmulDescAttributes_t which, const void* pointer) const;
  Result<Layout> make_layout(const ColumnMajor& matrix) const;
  Result<Preference> make_preference() const;

  const CublasLt* library_;
  std::shared_ptr<cublasLtContext> handle_;
  ColumnMajorProduct shape_;
  int64_t k_ = 1;
  bool tensor_cores_ = true;
  Activation activation_ = Activation::none;
  bool has_auxiliary_ = false;
  bool adds_ = false;
  uint32_t reductions_ = CUBLASLT_REDUCTION_SCHEME_MASK;
  cudaDataType_t type_ = CUDA_R_32F;
  cudaDataType_t scale_ = CUDA_R_32F;
  cublasComputeType_t compute_ = CUBLAS_COMPUTE_32F;
  Desc desc_{nullptr, {nullptr}};
  Layout a_{nullptr, {nullptr}};
  Layout b_{nullptr, {nullptr}};
  Layout c_{nullptr, {nullptr}};
};

}  // namespace millrace
