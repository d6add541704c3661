// Launches that are ready to run on the context's stream.
// Test: tests/device/cuda/cuda_gpu_test.cpp
#pragma once

#include <memory>
#include <string>

#include "device/cuda/context.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/cudnn_attention.h"
#include "device/gpu.h"

namespace millrace {

// Generated kernels, from the cubin that contains them. Since Hopper a kernel may start while the previous one still
// runs: it waits for it before it touches memory, in the prelude's begin().
Result<std::unique_ptr<GpuLaunch>> prepare_kernels(std::shared_ptr<CudaContext> context, const Launch& launch,
                                                   const std::string& cubin);

// A matrix product, with copies of operands that are not adjacent in memory. An unfolded operand is in scratch already.
Result<std::unique_ptr<GpuLaunch>> prepare_product(std::shared_ptr<CudaContext> context, const CublasLt& library,
                                                   std::shared_ptr<cublasLtContext> handle, const Launch& launch);

// Fused attention by cuDNN. Launches of equal calls share one plan of the library.
std::unique_ptr<GpuLaunch> make_attention_launch(std::shared_ptr<CudaContext> context, const Launch& launch,
                                                 std::shared_ptr<const CudnnAttention> attention);

}  // namespace millrace
