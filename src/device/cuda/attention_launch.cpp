#include <cmath>
#include <limits>
#include <utility>

#include "base/text.h"
#include "device/cuda/cuda_launch.h"
#include "device/cuda/kernel_parameters.h"

namespace millrace {
namespace {

using Role = CudnnAttentionTensor::Role;

constexpr uintptr_t kOperandAlignment = 16;  // of operands
constexpr int64_t kScratchAlignment = 256;   // of buffers in scratch

int64_t row_sums_bytes(const AttentionCall& call) {
  if (!call.backward) return 0;
  const auto bytes = static_cast<int64_t>(sizeof(float)) * call.batches * call.heads * call.queries;
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

class AttentionLaunch final : public GpuLaunch {
 public:
  AttentionLaunch(std::shared_ptr<CudaContext> context, const Launch& launch,
                  std::shared_ptr<const CudnnAttention> attention)
      : context_(std::move(context)),
        call_(launch.attention),
        numbers_(launch.numbers),
        attention_(std::move(attention)),
        row_sums_bytes_(row_sums_bytes(call_)) {}

  Result<Done> run(void* const* tensors, const double* arguments, const void*, void* scratch) override {
    const CurrentContext current(*context_);
    double factor = 1;
    for (const LaunchNumber& number : numbers_) factor *= value_of(number, arguments);
    // Read before the library returns.
    auto scale = static_cast<float>(factor);
    float one = 1;
    float hidden = -std::numeric_limits<float>::infinity();
    std::vector<int64_t> ids;
    std::vector<void*> pointers;
    for (const CudnnAttentionTensor& tensor : attention_->tensors) {
      ids.push_back(tensor.id);
      switch (tensor.role) {
        case Role::operand: pointers.push_back(tensors[call_.tensors[tensor.operand]]); break;
        case Role::scale: pointers.push_back(&scale); break;
        case Role::one: pointers.push_back(&one); break;
        case Role::hidden: pointers.push_back(&hidden); break;
        case Role::row_sums: pointers.push_back(scratch); break;
      }
      if (tensor.role == Role::operand && reinterpret_cast<uintptr_t>(pointers.back()) % kOperandAlignment != 0)
        return Error::make(ErrorKind::failed,
                           concat("cuDNN needs the tensors of an attention aligned to ", kOperandAlignment, " bytes"));
    }
    void* const workspace = static_cast<char*>(scratch) + row_sums_bytes_;
    return attention_->plan->run(ids, pointers, workspace, context_->stream());
  }

  int64_t scratch_bytes() const override { return row_sums_bytes_ + attention_->plan->workspace_bytes(); }

 private:
  std::shared_ptr<CudaContext> context_;
  AttentionCall call_;
  std::vector<LaunchNumber> numbers_;
  std::shared_ptr<const CudnnAttention> attention_;
  int64_t row_sums_bytes_;
};

}  // namespace

std::unique_ptr<GpuLaunch> make_attention_launch(std::shared_ptr<CudaContext> context, const Launch& launch,
                                                 std::shared_ptr<const CudnnAttention> attention) {
  return std::make_unique<AttentionLaunch>(std::move(context), launch, std::move(attention));
}

}  // namespace millrace
