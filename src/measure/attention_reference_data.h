// What an attention in one piece must compute, straight from its definition, head by head: the reference would have all
// of the scores in memory, several times. Test: tests/measure/attention_reference_data_test.cpp
#pragma once

#include "measure/reference_data.h"

namespace millrace {

// Makes the inputs fit each other, and fills the outputs: of `truth`, whose inputs are drawn. The queries become so
// large that the softmax has something to tell apart; the output and the logarithms that backward reads are those of
// the queries, keys and values beside them, as they are stored.
//
// What is allowed beside the rounding of what is stored, with u = 2⁻²⁴:
// - sums in float32 by tensor cores, which may cut off where others round: 2u an addition, of all magnitudes together;
// - exponentials by the GPU's own instruction: 2⁻²¹, and as much again whenever a row's maximum grows, which it can do
//   once for every 16 keys;
// - the weights behind the dropout, and the gradients of the scores, rounded to the operands' type before they are
//   multiplied again;
// - backward's sum over a row's weights and their gradients, from the output as it is stored.
// Each is carried through to the outputs as a bound for the worst case; none is measured.
void complete_attention(const Graph& graph, const Partition& partition, ReferenceData& reference_data);

}  // namespace millrace
