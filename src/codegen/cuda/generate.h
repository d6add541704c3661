// (partition, layouts, kernel way) → CUDA C++ for NVRTC. Test: tests/codegen/cuda_kernel_test.cpp
#pragma once

#include <string_view>

#include "candidates/candidates.h"
#include "codegen/kernel_text.h"

namespace millrace {

// `layouts`: one a tensor of the partition, its reads and then its writes. The way has a GpuShape.
KernelText generate_cuda_kernel(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                                const KernelConfig& config);

// src/codegen/prelude/cuda_hardware.h and cuda_prelude.h, which stand before a kernel.
std::string_view cuda_hardware();
std::string_view cuda_prelude();

}  // namespace millrace
