// (attention partition, layouts, config) → CUDA C++ for NVRTC. Test: tests/codegen/attention_kernel_test.cpp
//
// Requires: q, k, v, o and their gradients all in float16 or all in bfloat16; the column axis innermost, or the row
// axis if its extent is a multiple of 8; all other strides of more than one element multiples of 8. log_sums is float32
// in any layout. A mask must be that of a dropout. Inner and values are multiples of 8 up to 256; queries and keys
// have any size. Tiles have a multiple of 32 columns; there is at least one stage, and at most 32 warps.
#pragma once

#include <string_view>

#include "candidates/candidates.h"
#include "codegen/kernel_text.h"

namespace millrace {

// `layouts`: one for each tensor of the partition, its reads and then its writes.
KernelText generate_cuda_attention(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                                   const AttentionConfig& config);

// src/codegen/prelude/cuda_matrices.h, and all cuda_attention*.h in order: the text of such a kernel contains both.
std::string_view cuda_matrices();
std::string_view cuda_attention();

}  // namespace millrace
