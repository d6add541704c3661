// What a device is asked to run: the one vocabulary between those who generate and those who execute. A launch names
// its tensors by position, and the numbers of the program that only the caller knows by theirs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "device/gemm_call.h"

namespace millrace {

// A number that a launch is given: a known one, or an argument of the program.
struct LaunchNumber {
  int argument = -1;  // its position among the program's arguments; -1: `value`
  double value = 0;
};

// A kernel of a launch on a GPU.
struct GpuGrid {
  std::string function;  // in the launch's source
  int64_t blocks = 1;
  int threads = 1;
  int64_t shared_bytes = 0;  // that it asks for beside what is declared in it
};

struct Launch {
  std::string kernel;                  // source text of a generated kernel; empty: a matrix product
  std::vector<GpuGrid> grids;          // on a GPU: the source's kernels, one behind the other
  int64_t tensor_count = 0;            // of a kernel on a GPU
  std::vector<LaunchNumber> numbers;   // a kernel's values; factors of a product
  std::vector<uint32_t> subsequences;  // of a kernel's dropouts
  int64_t scratch_bytes = 0;           // that it needs, aligned to 64
  // A product: its call, and which tensors a, b and c are in; several are stacked, in memory one behind the other.
  GemmCall gemm;
  std::array<std::vector<int>, 3> operands;
  std::array<bool, 3> packed{};            // stacked, but apart in memory: copied together before, or apart behind
  std::array<int64_t, 3> operand_bytes{};  // of one tensor
  int added = -1;                          // the tensor that it adds, where it does
  int auxiliary = -1;                      // its auxiliary matrix, where it has one
  // Those of its vector, where it has one.
  std::vector<int> vectors;
  bool packed_vectors = false;
  int64_t vector_bytes = 0;  // of one tensor
};

// What changes from one run to the next.
struct LaunchState {
  const double* arguments = nullptr;  // the program's scalars, by position among its arguments
  uint64_t seed = 0;
  uint32_t step = 0;
};

}  // namespace millrace
