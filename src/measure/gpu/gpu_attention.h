// Expected values of fused attention, computed on a GPU from the unfused definition, some heads at a time.
// attention_reference_data.h says what they are and which errors are allowed. Test:
// tests/measure/gpu_reference_test.cpp
#pragma once

#include "measure/gpu/gpu_reference.h"

namespace millrace {

// Takes data with inputs drawn by these rules, makes the inputs consistent, and fills in the expected values and
// tolerances.
Result<Done> complete_gpu_attention(const OracleContext& context, const Graph& graph, const DrawRules& rules,
                                    const Partition& partition, GpuReferenceData& data);

}  // namespace millrace
