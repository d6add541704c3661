// Reductions of a CUDA kernel: inside a row, by its row threads; across rows, by every block and then by a second
// kernel, which adds the blocks' partial results in a fixed order. Test: tests/codegen/cuda_kernel_test.cpp
#pragma once

#include "codegen/cuda/kernel_statements.h"
#include "codegen/cuda/thread_mapping.h"

namespace millrace::codegen {

// Inside a row: `name` is the reduction of `expression` over the segment.
void reduce_row(const ThreadMapping& map, const PlacedInstruction& placed, const std::string& name,
                const std::string& expression, KernelStatements& kernel, SegmentStatements& to);

// Across rows: registers for a block's partial results, and their initial values.
Statements partial_arrays(const ThreadMapping& map);
// Adds `expression` to a partial result.
Statement add_to_partial(const ThreadMapping& map, const PlacedInstruction& placed, const std::string& expression);
// Stores a block's partial results in scratch memory.
Statements flush_partials(const ThreadMapping& map, KernelStatements& kernel);

// The second kernel, after the declarations that all kernels begin with.
constexpr int kFinishThreads = 512;  // of a block
struct FinishKernel {
  Statements body;
  int64_t blocks = 0;
};
FinishKernel finish_partials(const ThreadMapping& map);

}  // namespace millrace::codegen
