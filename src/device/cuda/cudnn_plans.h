// The attentions that cuDNN has planned in this process: the library takes up to seconds for one.
// Test: tests/device/cuda/cudnn_attention_test.cpp
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "device/cuda/cudnn_attention.h"

namespace millrace {

class CudnnPlans {
 public:
  CudnnPlans(std::shared_ptr<CudaContext> context, GpuInfo gpu) : context_(std::move(context)), gpu_(std::move(gpu)) {}

  // Opens the library on first use. Fails if it is missing, or does not compute the attention.
  Result<std::shared_ptr<const CudnnAttention>> find(const AttentionCall& call);

 private:
  Result<CudnnAttention> make(const AttentionCall& call);

  std::shared_ptr<CudaContext> context_;
  GpuInfo gpu_;
  std::shared_ptr<cudnnContext> handle_;
  std::map<AttentionCall, std::shared_ptr<const CudnnAttention>> plans_;
};

}  // namespace millrace
