#include "candidates/attention_parts.h"

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

AttentionParts parts_of(const Graph& graph, const AttentionPattern& pattern, OperatorId statistic) {
  const std::string of = concat(" (", graph.tensor(pattern.o.tensor).name, ")");
  const AttentionTensor log_sums = log_sums_of(graph, pattern, statistic);
  AttentionParts made;
  for (Part* const part : {&made.forward, &made.backward}) {
    part->kind = PartKind::attention;
    part->attention = attention_of(graph, pattern);
    take(part->attention, Attention::q, pattern.q);
    take(part->attention, Attention::k, pattern.k);
    take(part->attention, Attention::v, pattern.v);
    take(part->attention, Attention::o, pattern.o);
    take(part->attention, Attention::log_sums, log_sums);
    part->reads = {pattern.q.tensor, pattern.k.tensor, pattern.v.tensor};
  }
  Part& forward = made.forward;
  forward.name = concat("attention", of);
  forward.operators = pattern.forward;
  forward.operators.push_back(statistic);
  forward.writes = {pattern.o.tensor, log_sums.tensor};

  Part& backward = made.backward;
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

FoundAttentionParts find_attention_parts(const TrainingGraph& training, const std::vector<bool>& callers) {
  const Graph& graph = training.graph;
  const FoundAttentions found = find_attentions(graph, callers);
  FoundAttentionParts made;
  for (const AttentionPattern& pattern : found.attentions) {
    for (const OperatorId statistic : training.statistics) {
      if (graph.operators[statistic.at()].inputs[0].tensor == pattern.logits.tensor)
        made.parts.push_back(parts_of(graph, pattern, statistic));
    }
  }
  for (const NoAttention& none : found.declined) {
    const Operator& softmax = graph.operators[none.softmax.at()];
    made.declined.push_back({concat("attention around ", softmax.name, ": ", none.reason), 1});
  }
  return made;
}

}  // namespace millrace
