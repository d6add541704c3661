// Launches, ready to run on the context's stream.
#pragma once

#include <memory>
#include <string>

#include "device/cuda/context.h"
#include "device/cuda/cublaslt.h"
#include "device/gpu.h"

namespace millrace {

// Generated kernels, from the cubin that has them. Since Hopper they may be started while the kernel before still runs:
// each waits for it before it touches memory, as the prelude's begin() does.
Result<std::unique_ptr<GpuLaunch>> prepare_kernels(std::shared_ptr<CudaContext> context, const Launch& launch,
                                                   const std::string& cubin);

// A matrix product, with copies of operands that are apart in memory.
Result<std::unique_ptr<GpuLaunch>> prepare_product(std::shared_ptr<CudaContext> context, const CublasLt& library,
                                                   std::shared_ptr<cublasLtContext> handle, const Launch& launch);

}  // namespace millrace
