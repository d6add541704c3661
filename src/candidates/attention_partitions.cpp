#include "candidates/attention_partitions.h"

#include "base/text.h"
#include "ir/attention.h"

namespace millrace {
namespace {

// The rows' statistics run along the logits' axes but the keys'.
AttentionTensor log_sums_of(const Graph& graph, const AttentionPattern& pattern, OperatorId statistic) {
  AttentionTensor made{graph.operators[statistic.at()].outputs[0].tensor, pattern.logits.axes};
  const int key = made.axes.key;
  const auto close = [&](int& axis) { axis -= axis > key ? 1 : 0; };
  for (int& axis : made.axes.batch) close(axis);
  close(made.axes.query);
  made.axes.key = -1;
  return made;
}

// What both passes have in common.
Attention attention_of(const Graph& graph, const AttentionPattern& pattern) {
  Attention made;
  for (const DimId dim : pattern.batch) made.batch.push_back(graph.extent(dim));
  made.queries = graph.extent(pattern.query);
  made.keys = graph.extent(pattern.key);
  made.inner = graph.extent(pattern.inner);
  made.values = graph.extent(pattern.value);
  made.scales = pattern.scales;
  made.causal = pattern.causal;
  if (pattern.mask.tensor.valid()) {
    made.mask = pattern.mask.tensor;
    made.mask_axes = pattern.mask.axes;
  }
  return made;
}

void take(Attention& attention, Attention::Operand operand, const AttentionTensor& of) {
  attention.tensors[operand] = of.tensor;
  attention.axes[operand] = of.axes;
}

AttentionPartitions partitions_of(const Graph& graph, const AttentionPattern& pattern, OperatorId statistic) {
  const std::string of = concat(" (", graph.tensor(pattern.o.tensor).name, ")");
  const AttentionTensor log_sums = log_sums_of(graph, pattern, statistic);
  AttentionPartitions made;
  for (Partition* const partition : {&made.forward, &made.backward}) {
    partition->kind = PartitionKind::attention;
    partition->attention = attention_of(graph, pattern);
    take(partition->attention, Attention::q, pattern.q);
    take(partition->attention, Attention::k, pattern.k);
    take(partition->attention, Attention::v, pattern.v);
    take(partition->attention, Attention::o, pattern.o);
    take(partition->attention, Attention::log_sums, log_sums);
    partition->reads = {pattern.q.tensor, pattern.k.tensor, pattern.v.tensor};
  }
  Partition& forward = made.forward;
  forward.name = concat("attention", of);
  forward.operators = pattern.forward;
  forward.operators.push_back(statistic);
  forward.writes = {pattern.o.tensor, log_sums.tensor};

  Partition& backward = made.backward;
  backward.name = concat("attention_dx", of);
  backward.pass = Pass::backward;
  backward.operators = pattern.backward;
  backward.repeats = forward.operators;
  backward.attention.backward = true;
  take(backward.attention, Attention::d_o, pattern.d_o);
  take(backward.attention, Attention::d_q, pattern.d_q);
  take(backward.attention, Attention::d_k, pattern.d_k);
  take(backward.attention, Attention::d_v, pattern.d_v);
  backward.reads.insert(backward.reads.end(), {pattern.o.tensor, log_sums.tensor, pattern.d_o.tensor});
  backward.writes = {pattern.d_q.tensor, pattern.d_k.tensor, pattern.d_v.tensor};
  if (pattern.mask.tensor.valid()) {
    forward.writes.push_back(pattern.mask.tensor);
    backward.reads.push_back(pattern.mask.tensor);
  }
  return made;
}

}  // namespace

FoundAttentionPartitions find_attention_partitions(const TrainingGraph& training, const std::vector<bool>& callers) {
  const Graph& graph = training.graph;
  const FoundAttentions found = find_attentions(graph, callers);
  FoundAttentionPartitions made;
  for (const AttentionPattern& pattern : found.attentions) {
    for (const OperatorId statistic : training.statistics) {
      if (graph.operators[statistic.at()].inputs[0].tensor == pattern.logits.tensor)
        made.partitions.push_back(partitions_of(graph, pattern, statistic));
    }
  }
  for (const NoAttention& none : found.rejected) {
    const Operator& softmax = graph.operators[none.softmax.at()];
    made.rejected.push_back({concat("attention around ", softmax.name, ": ", none.reason), 1});
  }
  return made;
}

}  // namespace millrace
