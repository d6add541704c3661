// How many blocks of an attention's kernels a multiprocessor runs at a time, and the configs of the kernels that do not
// use the partition's own. Test: tests/codegen/attention_kernel_test.cpp
#pragma once

#include <cstdint>

#include "candidates/candidates.h"

namespace millrace {

// The rows of the scores that are divided among a kernel's blocks.
enum class OwnedRows { queries, keys };

// As many blocks of a multiprocessor as registers and shared memory allow with hardly any spills.
int64_t resident_blocks(const Attention& attention, const AttentionConfig& config, OwnedRows rows);

// How many heads' tiles fit the L2 cache together; a divisor of `heads`.
int64_t heads_together(const Attention& attention, int64_t heads);

// The config of the kernel that computes d_k and d_v, and of the one that computes the gradient of a term.
AttentionConfig dk_dv_config(AttentionConfig config);
AttentionConfig d_term_config(const Attention& attention);

// Shared memory of the latter, which prelude/cuda_attention_term.h checks.
int64_t d_term_smem_bytes(const Attention& attention, const AttentionConfig& config);

}  // namespace millrace
