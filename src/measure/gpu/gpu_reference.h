// Reference data of a partition, made and kept on a GPU: inputs are drawn there, the oracle (oracle/oracle.h) computes
// the outputs, and nothing large crosses the bus. The inputs have the same bits as those of reference_data.h.
// Test: tests/measure/gpu_reference_test.cpp
#pragma once

#include <vector>

#include "measure/reference_data.h"
#include "oracle/oracle.h"

namespace millrace {

struct ExpectedOnGpu {  // of one tensor that the partition writes; row-major doubles
  GpuMemory values;
  GpuMemory tolerances;
};

struct GpuReferenceData {
  std::vector<GpuMemory> inputs;  // one per tensor that the partition reads: row-major doubles
  std::vector<ExpectedOnGpu> expected;
  ReferenceData numbers;  // arguments and random state; no inputs and outputs
};

// What is needed to compute on the GPU.
struct OracleContext {
  Gpu& gpu;
  const Oracle& oracle;
  OracleMemory memory;
};

// Fails if the tensors do not fit into the GPU's memory, or would take it too long.
Result<GpuReferenceData> make_gpu_reference_data(const OracleContext& context, const Graph& graph,
                                                 const DrawRules& rules, const Partition& partition, uint64_t seed);

// Reference data without expected values.
Result<GpuReferenceData> draw_gpu_inputs(const OracleContext& context, const Graph& graph, const DrawRules& rules,
                                         const Partition& partition, uint64_t seed);

// The mask of a dropout.
Result<GpuMemory> draw_gpu_mask(const OracleContext& context, const Graph& graph, TensorId mask,
                                const RandomState& random);

}  // namespace millrace
