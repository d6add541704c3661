// What a device is asked to run: the one vocabulary between code that generates launches and code that executes them. A
// launch refers to its tensors by position. Scalars that only the caller knows are positions in the program's
// arguments.
// Tests: tests/exec/cpu_executor_test.cpp, tests/exec/gpu_executor_test.cpp
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "device/attention_call.h"
#include "device/gemm_call.h"
#include "device/strided_copy.h"

namespace millrace {

// A scalar that a launch receives: a constant, or an argument of the program.
struct LaunchNumber {
  int argument = -1;  // its position among the program's arguments; -1: `value`
  double value = 0;
};

// A kernel of a launch on a GPU.
struct GpuGrid {
  std::string function;  // in the launch's source
  int64_t blocks = 1;
  int threads = 1;
  int64_t shared_bytes = 0;  // dynamic shared memory, besides what the kernel declares
};

struct Launch {
  // Source text of a generated kernel; empty: a library's call. On a GPU, an unfolded product has both: the kernel
  // makes the copy.
  std::string kernel;
  std::vector<GpuGrid> grids;          // on a GPU: the source's kernels, in order
  int64_t tensor_count = 0;            // of a kernel on a GPU
  std::vector<LaunchNumber> numbers;   // a kernel's scalars, or the factors of a product or of an attention's scores
  std::vector<uint32_t> subsequences;  // of a kernel's dropouts
  int threads = 1;                     // of a kernel on the CPU
  int64_t scratch_bytes = 0;           // that it needs, aligned to 64
  // A product: its call, and the tensors of a, b and c. Several tensors are stacked: adjacent in memory.
  GemmCall gemm;
  std::array<std::vector<int>, 3> operands;
  std::array<bool, 3> packed{};            // stacked but not adjacent: copied together before, or copied out after
  std::array<int64_t, 3> operand_bytes{};  // of one tensor
  std::array<StridedCopy, 2> unfolded;     // of a and b, which then has one tensor; empty: read in place
  int added = -1;                          // the tensor that it adds; -1: none
  int auxiliary = -1;                      // its auxiliary matrix; -1: none
  // The tensors of its vector, if it has one.
  std::vector<int> vectors;
  bool packed_vectors = false;
  int64_t vector_bytes = 0;  // of one tensor
  // Fused attention by cuDNN: instead of a product.
  AttentionCall attention;

  bool is_library_attention() const { return attention.batches > 0; }
  bool is_product() const { return !operands.front().empty(); }
  bool is_unfolded() const { return !unfolded[0].empty() || !unfolded[1].empty(); }
  // What a product needs in scratch for a, b or c: a copy of stacked tensors, or of windows.
  int64_t copied_bytes(size_t operand) const {
    if (operand < 2 && !unfolded[operand].empty()) return unfolded[operand].elements() * bytes_of(gemm.type);
    return packed[operand] ? operand_bytes[operand] * static_cast<int64_t>(operands[operand].size()) : 0;
  }
};

// What changes from one run to the next.
struct LaunchState {
  const double* arguments = nullptr;  // the program's scalars, by position among its arguments
  uint64_t seed = 0;
  uint32_t step = 0;
};

}  // namespace millrace
