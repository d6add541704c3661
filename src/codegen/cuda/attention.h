// (attention partition, layouts, way) → CUDA C++ for NVRTC. Test: tests/codegen/attention_kernel_test.cpp
//
// What it takes: q, k, v, o and their gradients in float16, or all in bfloat16, with the column's axis innermost, or
// the rows' axis where these are a multiple of 8, and all other strides of more than one element multiples of 8;
// log_sums in float32, anyhow; a mask that is drawn. Inner and values are multiples of 16 up to 128; queries and keys
// of any size. Of the way: panels of a multiple of 32, one stage or more, at most 32 warps.
#pragma once

#include <string_view>

#include "candidates/candidates.h"
#include "codegen/kernel_text.h"

namespace millrace {

// `layouts`: one a tensor of the partition, its reads and then its writes.
KernelText generate_cuda_attention(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                                   const AttentionConfig& config);

// src/codegen/prelude/cuda_matrices.h and cuda_attention.h, which are in the text of such a kernel.
std::string_view cuda_matrices();
std::string_view cuda_attention();

}  // namespace millrace
