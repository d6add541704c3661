// The oracle on a GPU: computes a graph's tensors there from their definitions, unfused, each output element by one
// thread in double precision with a running error bound. It checks candidates on a GPU, as the interpreter
// (reference/interpreter.h) does on the CPU; the interpreter checks it. docs/decisions/0013-oracle.md says why.
// Test: tests/oracle/oracle_test.cpp
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/gpu_kernel_cache.h"
#include "device/gpu_memory.h"
#include "oracle/operator_tasks.h"

namespace millrace {

// The text of task.h, numbers.h and kernels.h.
std::string_view oracle_text();

// A tensor on the GPU, row-major.
struct OracleTensor {
  oracle::Format format = oracle::kBounded;
  double number = 0;    // of one number
  double relative = 0;  // error of exact values: relative · |value| + absolute
  double absolute = 0;
  double* data = nullptr;
  GpuMemory memory;  // of `data`, if it is the oracle's

  static OracleTensor of_number(double value);
  static OracleTensor of_values(double* values);  // without errors
};

struct OracleSettings {
  uint64_t seed = 0;  // of dropouts
  uint32_t step = 0;
  double roundoff = 0;  // u of the arithmetic whose errors are bounded: 2^-24 for float32
};

// Provides memory, and may free other memory that is less needed.
using OracleMemory = std::function<Result<GpuMemory>(int64_t bytes)>;

inline constexpr int64_t kBytesOfNumber = 5 * sizeof(double);

class Oracle {
 public:
  // `cache`: compiles after cuda_hardware.h, and keeps the kernels.
  static Result<Oracle> make(Gpu& gpu, const GpuKernelCache& cache);

  // Computes every tensor that operators write. `tensors`: one per tensor of the graph; arguments, scalars and result
  // gradients must be set. Keeps those in `kept`, and frees the others after their last use. The GPU may still be busy.
  Result<Done> run(const Graph& graph, std::vector<OracleTensor>& tensors, const std::vector<TensorId>& kept,
                   const OracleSettings& settings, const OracleMemory& memory) const;

  // Runs one task, whose operands have addresses. `memory` is for partial results.
  Result<Done> run(TaskKind kind, const oracle::Task& wanted, const OracleMemory& memory) const;

 private:
  explicit Oracle(Gpu& gpu) : gpu_(&gpu) {}

  Result<Done> run(const Graph& graph, const Operator& op, std::vector<OracleTensor>& tensors,
                   const OracleSettings& settings, const OracleMemory& memory) const;

  Gpu* gpu_;
  std::unique_ptr<GpuLaunch> map_;
  std::unique_ptr<GpuLaunch> fold_;
  std::unique_ptr<GpuLaunch> contract_;
  std::unique_ptr<GpuLaunch> join_;
  GpuMemory task_;  // the one that runs
};

}  // namespace millrace
