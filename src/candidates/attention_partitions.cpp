#include "candidates/attention_partitions.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "candidates/partition_kinds.h"
#include "ir/attention.h"

namespace millrace {
namespace {

// The rows' statistics have the logits' axes, without that of the keys.
AttentionTensor log_sums_of(const Graph& graph, const AttentionPattern& pattern, OperatorId statistic) {
  AttentionTensor made{graph.operators[statistic.at()].outputs[0].tensor, pattern.logits.axes};
  const int key = made.axes.key;
  const auto drop_key = [&](int& axis) { axis -= axis > key ? 1 : 0; };
  for (int& axis : made.axes.batch) drop_key(axis);
  drop_key(made.axes.query);
  made.axes.key = -1;
  return made;
}

Attention attention_of(const Graph& graph, const AttentionPattern& pattern) {
  Attention made;
  for (const DimId dim : pattern.batch) made.batch.push_back(graph.extent(dim));
  made.queries = graph.extent(pattern.query);
  made.keys = graph.extent(pattern.key);
  made.inner = graph.extent(pattern.inner) * (pattern.outer_inner.valid() ? graph.extent(pattern.outer_inner) : 1);
  made.values = graph.extent(pattern.value);
  made.scales = pattern.scales;
  made.causal = pattern.window.is_causal();
  if (!made.causal && !pattern.window.is_everything()) made.window = pattern.window;
  if (pattern.mask.tensor.valid()) {
    made.mask = pattern.mask.tensor;
    made.mask_axes = pattern.mask.axes;
  }
  return made;
}

void set(Attention& attention, Attention::Operand operand, const AttentionTensor& tensor) {
  attention.tensors[operand] = tensor.tensor;
  attention.axes[operand] = tensor.axes;
}

void read_terms(const ScoreExpression& score, Partition& partition) {
  for (const AttentionTensor& term : score.terms) {
    if (std::find(partition.reads.begin(), partition.reads.end(), term.tensor) == partition.reads.end())
      partition.reads.push_back(term.tensor);
  }
}

// What both passes have in common.
Partition partition_of(const Graph& graph, const AttentionPattern& pattern, const AttentionTensor& log_sums) {
  Partition made;
  made.kind = PartitionKind::attention;
  made.attention = attention_of(graph, pattern);
  set(made.attention, Attention::q, pattern.q);
  set(made.attention, Attention::k, pattern.k);
  set(made.attention, Attention::v, pattern.v);
  set(made.attention, Attention::o, pattern.o);
  set(made.attention, Attention::log_sums, log_sums);
  made.reads = {pattern.q.tensor, pattern.k.tensor, pattern.v.tensor};
  return made;
}

Partition forward_of(const Graph& graph, const AttentionPattern& pattern, OperatorId statistic,
                     const AttentionTensor& log_sums) {
  Partition forward = partition_of(graph, pattern, log_sums);
  forward.name = concat("attention (", graph.tensor(pattern.o.tensor).name, ")");
  forward.operators = pattern.forward;
  forward.operators.push_back(statistic);
  forward.repeats = pattern.repeated;
  forward.writes = {pattern.o.tensor, log_sums.tensor};
  forward.attention.score = pattern.score;
  read_terms(pattern.score, forward);
  if (pattern.mask.tensor.valid()) forward.writes.push_back(pattern.mask.tensor);
  return forward;
}

Partition backward_of(const Graph& graph, const AttentionPattern& pattern, const Partition& forward,
                      const AttentionTensor& log_sums) {
  Partition backward = partition_of(graph, pattern, log_sums);
  backward.name = concat("attention_dx (", graph.tensor(pattern.o.tensor).name, ")");
  backward.pass = Pass::backward;
  backward.operators = pattern.backward;
  backward.repeats = forward.operators;
  backward.repeats.insert(backward.repeats.end(), pattern.repeated.begin(), pattern.repeated.end());
  backward.attention.score = pattern.gradients;
  backward.attention.backward = true;
  set(backward.attention, Attention::d_o, pattern.d_o);
  backward.reads.insert(backward.reads.end(), {pattern.o.tensor, log_sums.tensor, pattern.d_o.tensor});
  read_terms(pattern.gradients, backward);
  const auto write = [&](Attention::Operand operand, const AttentionTensor& gradient) {
    if (!gradient.tensor.valid()) return;
    set(backward.attention, operand, gradient);
    backward.writes.push_back(gradient.tensor);
  };
  write(Attention::d_q, pattern.d_q);
  write(Attention::d_k, pattern.d_k);
  write(Attention::d_v, pattern.d_v);
  if (pattern.d_term.tensor.valid()) {
    backward.attention.d_term = pattern.d_term.tensor;
    backward.attention.d_term_axes = pattern.d_term.axes;
    backward.writes.push_back(pattern.d_term.tensor);
  }
  if (pattern.mask.tensor.valid()) backward.reads.push_back(pattern.mask.tensor);
  return backward;
}

AttentionPartitions partitions_of(const Graph& graph, const AttentionPattern& pattern, OperatorId statistic) {
  const AttentionTensor log_sums = log_sums_of(graph, pattern, statistic);
  AttentionPartitions made{forward_of(graph, pattern, statistic, log_sums), std::nullopt};
  if (!pattern.backward.empty()) made.backward = backward_of(graph, pattern, made.forward, log_sums);
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

// An attention ties several choice points into one. It is added only if that one keeps all alternatives that its
// operators had before.
void add_attentions(const PartitionBuilder& builder, PartitionSet& set) {
  FoundAttentionPartitions attentions = find_attention_partitions(builder.training(), builder.callers());
  for (Rejected& rejected : attentions.rejected) set.reject(std::move(rejected.reason));
  if (attentions.partitions.empty()) return;
  std::map<size_t, size_t> alternatives;  // their number, by choice point
  for (const ChoicePoint& choice_point : set.choice_points()) {
    const Partition& first = set.partitions()[as_index(choice_point.alternatives.front().front())].partition;
    alternatives[set.choice_point_of(first.operators.front())] = choice_point.alternatives.size();
  }
  for (AttentionPartitions& attention : attentions.partitions) {
    std::vector<Partition*> passes = {&attention.forward};
    if (attention.backward) passes.push_back(&*attention.backward);
    std::set<size_t> tied;
    for (const Partition* const partition : passes) {
      for (const OperatorId op : partition->operators) tied.insert(set.choice_point_of(op));
    }
    size_t together = 1;  // without the attention; with it, at most as many again
    for (const size_t number : tied) together *= alternatives.contains(number) ? alternatives[number] : 1;
    if (2 * together > kMostAlternatives) {
      set.reject(concat(attention.forward.name, ": its operators have ", together,
                        " other alternatives, too many to try it with"));
      continue;
    }
    set.tie(attention.forward, *passes.back());
    const OperatorId any = attention.forward.operators.front();
    std::vector<std::string> names;
    for (Partition* const partition : passes) names.push_back(set.add(std::move(*partition)));
    if (names.size() > 1) set.bundle(std::move(names));
    alternatives[set.choice_point_of(any)] = 2 * together;
  }
}

}  // namespace millrace
