#include "device/cuda/cudnn_plans.h"

#include "base/text.h"

namespace millrace {

Result<std::shared_ptr<const CudnnAttention>> CudnnPlans::find(const AttentionCall& call) {
  if (const auto known = plans_.find(call); known != plans_.end()) return known->second;
  Result<CudnnAttention> made = make(call);
  if (!made) return made.error();
  constexpr int64_t kShare = 16;  // of the GPU's memory that one launch may take as its workspace
  if (const int64_t bytes = made->plan->workspace_bytes(); bytes > gpu_.memory_bytes / kShare)
    return Error::make(ErrorKind::failed,
                       concat("cuDNN needs a workspace of ", bytes, " bytes for an attention, more than 1/", kShare,
                              " of the GPU's memory"));
  return plans_[call] = std::make_shared<const CudnnAttention>(std::move(*made));
}

Result<CudnnAttention> CudnnPlans::make(const AttentionCall& call) {
  // On newer GPUs other engines compute backward. They need another request to add in a fixed order.
  constexpr int kLastInFixedOrder = 9;
  if (call.backward && gpu_.major > kLastInFixedOrder)
    return Error::make(ErrorKind::failed,
                       concat("cuDNN's backward attention may give other bits in each run on ", gpu_.architecture()));
  const Result<const Cudnn*> library = cudnn_library();
  if (!library) return library.error();
  const CurrentContext current(*context_);
  if (!handle_) {
    Result<std::shared_ptr<cudnnContext>> opened = open_cudnn(**library, context_);
    if (!opened) return opened.error();
    handle_ = std::move(*opened);
  }
  return make_cudnn_attention(**library, handle_, call);
}

}  // namespace millrace
