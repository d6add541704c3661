#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/text.h"
#include "device/cuda/cuda_launch.h"
#include "device/cuda/kernel_parameters.h"

namespace millrace {
namespace {

constexpr int64_t kAlignment = 256;  // of buffers in scratch

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct ChosenAlgorithm {
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace_bytes = 0;
  std::array<uint32_t, 3> alignments{1, 1, 1};  // bytes, of the call's a, b and c
};

Result<ChosenAlgorithm> choose(const CublasLtProduct& product, const GemmAlgorithm& asked) {
  ChosenAlgorithm chosen;
  if (asked.id < 0) {
    const Result<std::vector<cublasLtMatmulHeuristicResult_t>> best = product.heuristic(1);
    if (!best) return best.error();
    if (best->empty()) return Error::make(ErrorKind::failed, "cuBLASLt has no algorithm for a product");
    chosen.algorithm = best->front().algo;
    chosen.workspace_bytes = best->front().workspaceSize;
  } else {
    constexpr const char* kRemedy = "another version of cuBLASLt numbers its algorithms differently: explore again";
    Result<cublasLtMatmulAlgo_t> algorithm = product.configured(asked);
    if (!algorithm) {
      algorithm.error().diagnostics.front().remedy = kRemedy;
      return algorithm.error();
    }
    cublasLtMatmulHeuristicResult_t result{};
    if (!product.admits(*algorithm, result))
      return Error::make(ErrorKind::failed,
                         concat("cuBLASLt does not accept its algorithm ", asked.id, " for a product"), kRemedy);
    chosen.algorithm = *algorithm;
    chosen.workspace_bytes = result.workspaceSize;
  }
  const auto wanted = [&](cublasLtMatmulAlgoCapAttributes_t which) {
    return std::max<uint32_t>(product.capability<uint32_t>(chosen.algorithm, which, 1), 1);
  };
  chosen.alignments = {
      wanted(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES), wanted(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES),
      std::max(wanted(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES), wanted(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES))};
  if (product.shape().swapped) std::swap(chosen.alignments[0], chosen.alignments[1]);
  return chosen;
}

// Offsets in scratch, after those of the operands that are copied.
constexpr size_t kVector = 3;
constexpr size_t kWorkspace = 4;
constexpr size_t kEnd = 5;

// A vector always has space in scratch, because the caller's vector may not be aligned.
std::array<int64_t, 6> places_in_scratch(const Launch& launch, size_t workspace_bytes) {
  std::array<int64_t, 6> places{};
  for (size_t operand = 0; operand < 3; ++operand)
    places[operand + 1] = places[operand] + aligned(launch.copied_bytes(operand));
  places[kWorkspace] = places[kVector] + aligned(launch.vector_bytes * static_cast<int64_t>(launch.vectors.size()));
  places[kEnd] = places[kWorkspace] + aligned(static_cast<int64_t>(workspace_bytes));
  return places;
}

class ProductLaunch final : public GpuLaunch {
 public:
  ProductLaunch(std::shared_ptr<CudaContext> context, const Launch& launch, CublasLtProduct product,
                const ChosenAlgorithm& chosen)
      : context_(std::move(context)),
        launch_(launch),
        product_(std::move(product)),
        chosen_(chosen),
        places_(places_in_scratch(launch, chosen.workspace_bytes)) {}

  Result<Done> run(void* const* tensors, const double* arguments, const void*, void* scratch) override {
    const CurrentContext current(*context_);
    const auto at_in_scratch = [&](size_t place) { return static_cast<char*>(scratch) + places_[place]; };
    std::array<char*, 3> at{};
    std::array<char*, 3> first_at{};  // where all indices are zero
    for (size_t operand = 0; operand < 3; ++operand) {
      at[operand] = launch_.copied_bytes(operand) > 0 ? at_in_scratch(operand)
                                                      : static_cast<char*>(tensors[launch_.operands[operand].front()]);
      const int64_t first = operand == 0 ? launch_.gemm.a_first : operand == 1 ? launch_.gemm.b_first : 0;
      first_at[operand] = at[operand] + first * bytes_of(launch_.gemm.type);
      if (reinterpret_cast<uintptr_t>(first_at[operand]) % chosen_.alignments[operand] != 0)
        return Error::make(ErrorKind::failed, concat("cuBLASLt's algorithm needs matrix ", "ABC"[operand],
                                                     " aligned to ", chosen_.alignments[operand], " bytes"));
    }
    const void* const added = launch_.gemm.adds ? tensors[launch_.added] : nullptr;
    if (reinterpret_cast<uintptr_t>(added) % chosen_.alignments[2] != 0)
      return Error::make(ErrorKind::failed, concat("cuBLASLt's algorithm needs the added matrix aligned to ",
                                                   chosen_.alignments[2], " bytes"));
    const void* const auxiliary = launch_.gemm.has_auxiliary ? tensors[launch_.auxiliary] : nullptr;
    const int64_t auxiliary_alignment = product_.shape().c.pointer_alignment;
    if (reinterpret_cast<uintptr_t>(auxiliary) % static_cast<uintptr_t>(auxiliary_alignment) != 0)
      return Error::make(ErrorKind::failed,
                         concat("cuBLASLt needs the auxiliary matrix aligned to ", auxiliary_alignment, " bytes"));
    for (const size_t operand : {size_t{0}, size_t{1}})
      if (launch_.packed[operand])
        if (Result<Done> copied = copy(operand, at[operand], tensors); !copied) return copied;
    const bool apart = is_vector_apart(tensors);
    char* vector = nullptr;
    if (!launch_.vectors.empty())
      vector = apart ? at_in_scratch(kVector) : static_cast<char*>(tensors[launch_.vectors.front()]);
    const bool writes_vector = launch_.gemm.vector != GemmVector::bias;
    if (apart && !writes_vector)
      if (Result<Done> copied = copy_vectors(vector, false, tensors); !copied) return copied;
    double alpha = 1;
    for (const LaunchNumber& number : launch_.numbers) alpha *= value_of(number, arguments);
    void* workspace = chosen_.workspace_bytes > 0 ? at_in_scratch(kWorkspace) : nullptr;
    if (Result<Done> multiplied =
            product_.multiply(alpha, {first_at[0], first_at[1], added, at[2], vector, auxiliary}, chosen_.algorithm,
                              workspace, chosen_.workspace_bytes, context_->stream());
        !multiplied)
      return multiplied;
    if (apart && writes_vector)
      if (Result<Done> copied = copy_vectors(vector, true, tensors); !copied) return copied;
    return launch_.packed[2] ? copy(2, at[2], tensors) : Done{};
  }

  int64_t scratch_bytes() const override { return places_[kEnd]; }

 private:
  // Copies inputs from their tensors into one, and the output from one into its tensors.
  Result<Done> copy(size_t operand, const char* together, void* const* tensors) const {
    return copy(launch_.operands[operand], launch_.operand_bytes[operand], together, operand == 2, tensors);
  }

  Result<Done> copy_vectors(const char* together, bool apart, void* const* tensors) const {
    return copy(launch_.vectors, launch_.vector_bytes, together, apart, tensors);
  }

  // Stacked vectors may not be adjacent, and the caller's may be less aligned than the library assumes.
  bool is_vector_apart(void* const* tensors) const {
    return launch_.packed_vectors ||
           (!launch_.vectors.empty() &&
            reinterpret_cast<uintptr_t>(tensors[launch_.vectors.front()]) % kVectorAlignment != 0);
  }

  Result<Done> copy(const std::vector<int>& stack, int64_t tensor_bytes, const char* together, bool apart,
                    void* const* tensors) const {
    const auto bytes = static_cast<size_t>(tensor_bytes);
    for (const int tensor : stack) {
      const void* from = apart ? together : tensors[tensor];
      const void* to = apart ? tensors[tensor] : together;
      const CUresult result =
          context_->driver().memcpy_on_device(address(to), address(from), bytes, context_->stream());
      if (result != CUDA_SUCCESS) return context_->check(result, "copy a stacked matrix");
      together += bytes;
    }
    return Done{};
  }

  std::shared_ptr<CudaContext> context_;
  Launch launch_;
  CublasLtProduct product_;
  ChosenAlgorithm chosen_;
  std::array<int64_t, 6> places_;
};

}  // namespace

Result<std::unique_ptr<GpuLaunch>> prepare_product(std::shared_ptr<CudaContext> context, const CublasLt& library,
                                                   std::shared_ptr<cublasLtContext> handle, const Launch& launch) {
  if (launch.gemm.library != GemmLibrary::cublaslt)
    return Error::make(ErrorKind::failed, "a product for a CPU library was given to a GPU");
  for (const std::vector<int>& stack : launch.operands)
    if (stack.empty()) return Error::make(ErrorKind::failed, "a product lacks a matrix");
  if (launch.vectors.empty() != (launch.gemm.vector == GemmVector::none))
    return Error::make(ErrorKind::failed, "a product lacks its vector, or has one that it does not use");
  if (launch.gemm.adds != (launch.added >= 0))
    return Error::make(ErrorKind::failed, "a product lacks the tensor that it adds, or has one that it does not add");
  if (launch.gemm.has_auxiliary != (launch.auxiliary >= 0))
    return Error::make(ErrorKind::failed, "a product lacks its auxiliary matrix, or has one that it does not use");
  const CurrentContext current(*context);
  Result<CublasLtProduct> product = CublasLtProduct::make(library, std::move(handle), launch.gemm);
  if (!product) return product.error();
  const Result<ChosenAlgorithm> chosen = choose(*product, launch.gemm.algorithm);
  if (!chosen) return chosen.error();
  return std::unique_ptr<GpuLaunch>(
      std::make_unique<ProductLaunch>(std::move(context), launch, std::move(*product), *chosen));
}

}  // namespace millrace
