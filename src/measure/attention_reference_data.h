// Expected values of fused attention, computed head by head from its definition: the reference would keep all scores in
// memory several times. Test: tests/measure/attention_reference_data_test.cpp
#pragma once

#include "measure/reference_data.h"

namespace millrace {

// Takes reference data with inputs drawn by these rules, makes the inputs consistent, and fills in the outputs. Scales
// the queries so that the softmax is not flat. The output and the logarithms that backward reads are computed from the
// stored queries, keys and values.
//
// Allowed errors besides the rounding of stored values, with u = 2⁻²⁴:
// - float32 sums on tensor cores, which may truncate instead of round: 2u per addition, of all magnitudes together;
// - exponentials by the GPU's own instruction: 2⁻²¹, and as much again whenever a row's maximum grows, at most once per
//   16 keys;
// - the weights after the dropout, and the gradients of the scores, are rounded to the operands' type before they are
//   multiplied again;
// - backward's sum over a row's weights and their gradients uses the stored output.
// Each is propagated to the outputs as a worst-case bound; none is measured.
void complete_attention(const Graph& graph, const DrawRules& rules, const Partition& partition,
                        ReferenceData& reference_data);

}  // namespace millrace
