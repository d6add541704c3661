#include "candidates/attention_partitions.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "candidates/choice_points.h"
#include "candidates/partition_kinds.h"
#include "ir/attention.h"
#include "ir/attention_rows.h"

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

void read_terms(const std::vector<AttentionTensor>& terms, Partition& partition) {
  for (const AttentionTensor& term : terms) {
    if (std::find(partition.reads.begin(), partition.reads.end(), term.tensor) == partition.reads.end())
      partition.reads.push_back(term.tensor);
  }
}

void set_rows(Attention& attention, Attention::Operand operand, const AttentionRows& rows) {
  set(attention, operand, rows.tensor);
  attention.rows[operand] = rows.expression;
}

// The rows of an attention that absorbs no operators.
AbsorbedRows plain_rows(const AttentionPattern& pattern) {
  return {{pattern.q, {}}, {pattern.k, {}}, {pattern.d_q, {}}, {pattern.d_k, {}}, {}, {}};
}

std::vector<OperatorId> merged(std::vector<OperatorId> one, const std::vector<OperatorId>& other) {
  one.insert(one.end(), other.begin(), other.end());
  std::sort(one.begin(), one.end());
  return one;
}

// What both passes have in common.
Partition partition_of(const Graph& graph, const AttentionPattern& pattern, const AbsorbedRows& rows,
                       const AttentionTensor& log_sums) {
  Partition made;
  made.kind = PartitionKind::attention;
  made.attention = attention_of(graph, pattern);
  set_rows(made.attention, Attention::q, rows.q);
  set_rows(made.attention, Attention::k, rows.k);
  set(made.attention, Attention::v, pattern.v);
  set(made.attention, Attention::o, pattern.o);
  set(made.attention, Attention::log_sums, log_sums);
  made.reads = {rows.q.tensor.tensor, rows.k.tensor.tensor, pattern.v.tensor};
  read_terms(rows.q.expression.terms, made);
  read_terms(rows.k.expression.terms, made);
  return made;
}

Partition forward_of(const Graph& graph, const AttentionPattern& pattern, const AbsorbedRows& rows,
                     OperatorId statistic, const AttentionTensor& log_sums) {
  Partition forward = partition_of(graph, pattern, rows, log_sums);
  forward.operators = merged(pattern.forward, rows.forward);
  forward.operators.push_back(statistic);
  forward.repeats = pattern.repeated;
  forward.writes = {pattern.o.tensor, log_sums.tensor};
  forward.attention.score = pattern.score;
  read_terms(pattern.score.terms, forward);
  if (pattern.mask.tensor.valid()) forward.writes.push_back(pattern.mask.tensor);
  return forward;
}

Partition backward_of(const Graph& graph, const AttentionPattern& pattern, const AbsorbedRows& rows,
                      const Partition& forward, const AttentionTensor& log_sums) {
  Partition backward = partition_of(graph, pattern, rows, log_sums);
  backward.pass = Pass::backward;
  backward.operators = merged(pattern.backward, rows.backward);
  backward.repeats = forward.operators;
  backward.repeats.insert(backward.repeats.end(), pattern.repeated.begin(), pattern.repeated.end());
  backward.attention.score = pattern.gradients;
  backward.attention.backward = true;
  set(backward.attention, Attention::d_o, pattern.d_o);
  backward.reads.insert(backward.reads.end(), {pattern.o.tensor, log_sums.tensor, pattern.d_o.tensor});
  read_terms(pattern.gradients.terms, backward);
  read_terms(rows.d_q.expression.terms, backward);
  read_terms(rows.d_k.expression.terms, backward);
  const auto write = [&](Attention::Operand operand, const AttentionRows& gradient) {
    if (!gradient.tensor.tensor.valid()) return;
    set_rows(backward.attention, operand, gradient);
    backward.writes.push_back(gradient.tensor.tensor);
  };
  write(Attention::d_q, rows.d_q);
  write(Attention::d_k, rows.d_k);
  write(Attention::d_v, {pattern.d_v, {}});
  if (pattern.d_term.tensor.valid()) {
    backward.attention.d_term = pattern.d_term.tensor;
    backward.attention.d_term_axes = pattern.d_term.axes;
    backward.writes.push_back(pattern.d_term.tensor);
  }
  if (pattern.mask.tensor.valid()) backward.reads.push_back(pattern.mask.tensor);
  return backward;
}

// "gamma", or "gamma with qq, kk": the operands whose rows it computes.
std::string short_name(const Graph& graph, const AttentionPattern& pattern, const AbsorbedRows& rows) {
  const std::string& o = graph.tensor(pattern.o.tensor).name;
  std::vector<std::string> computed;
  if (!rows.q.expression.empty() || !rows.d_q.expression.empty())
    computed.push_back(graph.tensor(pattern.q.tensor).name);
  if (!rows.k.expression.empty() || !rows.d_k.expression.empty())
    computed.push_back(graph.tensor(pattern.k.tensor).name);
  return computed.empty() ? o : concat(o, " with ", join(computed, ", "));
}

AttentionPartitions partitions_of(const Graph& graph, const AttentionPattern& pattern, const AbsorbedRows& rows,
                                  OperatorId statistic) {
  const AttentionTensor log_sums = log_sums_of(graph, pattern, statistic);
  const std::string name = short_name(graph, pattern, rows);
  AttentionPartitions made{forward_of(graph, pattern, rows, statistic, log_sums), std::nullopt};
  made.forward.name = concat("attention (", name, ")");
  if (pattern.backward.empty()) return made;
  made.backward = backward_of(graph, pattern, rows, made.forward, log_sums);
  made.backward->name = concat("attention_dx (", name, ")");
  return made;
}

}  // namespace

FoundAttentionPartitions find_attention_partitions(const TrainingGraph& training, const std::vector<bool>& callers) {
  const Graph& graph = training.graph;
  const FoundAttentions found = find_attentions(graph, callers);
  FoundAttentionPartitions made;
  for (const AttentionPattern& pattern : found.attentions) {
    for (const OperatorId statistic : training.statistics) {
      if (graph.operators[statistic.at()].inputs[0].tensor != pattern.logits.tensor) continue;
      made.partitions.push_back(partitions_of(graph, pattern, plain_rows(pattern), statistic));
      if (const std::optional<AbsorbedRows> rows = absorbed_rows(graph, callers, pattern))
        made.partitions.push_back(partitions_of(graph, pattern, *rows, statistic));
    }
  }
  for (const NoAttention& none : found.rejected) {
    const Operator& softmax = graph.operators[none.softmax.at()];
    made.rejected.push_back({concat("attention around ", softmax.name, ": ", none.reason), 1});
  }
  return made;
}

namespace {

AttentionAlternative alternative_of(const PartitionBuilder& builder, const Partition& attention) {
  std::vector<OperatorId> operators = attention.operators;
  for (const OperatorId statistic : builder.training().statistics) std::erase(operators, statistic);
  AttentionAlternative made{attention.name, builder.names_of(operators), 0, 0, builder.words_moved(attention)};
  for (const FusedOperator* const group : builder.groups_with(operators)) {
    std::vector<size_t> inside;
    for (size_t k = 0; k < group->members.size(); ++k) {
      if (has(operators, group->members[k])) inside.push_back(k);
    }
    ++made.launches_apart;
    made.words_apart += inside.size() == group->members.size() ? group->words_after
                                                               : builder.words_moved(builder.kernel(*group, inside));
  }
  return made;
}

}  // namespace

std::vector<AttentionAlternative> attention_alternatives(const TrainingGraph& training, const FusedGraph& fused) {
  const PartitionBuilder builder(training, fused);
  std::vector<AttentionAlternative> made;
  for (const AttentionPartitions& each : find_attention_partitions(training, builder.callers()).partitions) {
    made.push_back(alternative_of(builder, each.forward));
    if (each.backward) made.push_back(alternative_of(builder, *each.backward));
  }
  return made;
}

namespace {

// How many alternatives one choice point has after an attention tied several choice points into it.
class TiedChoicePoints {
 public:
  // `alternatives`: their number, by choice point; one if unknown.
  TiedChoicePoints(const PartitionSet& set, const std::map<size_t, size_t>& alternatives,
                   const std::vector<Partition*>& passes, size_t operators) {
    std::map<size_t, size_t> left;  // operators that the attention does not carry out
    for (size_t op = 0; op < operators; ++op) ++left[set.choice_point_of(OperatorId(op))];
    std::set<size_t> tied;
    for (const Partition* const partition : passes) {
      for (const OperatorId op : partition->operators) {
        tied.insert(set.choice_point_of(op));
        --left[set.choice_point_of(op)];
      }
    }
    for (const size_t number : tied) {
      const auto found = alternatives.find(number);
      const size_t own = found == alternatives.end() ? 1 : found->second;
      without_ *= own;
      with_ *= left[number] == 0 ? 1 : own;
    }
  }

  size_t without() const { return without_; }
  size_t together() const { return without_ + with_; }  // at most

 private:
  size_t without_ = 1;
  size_t with_ = 1;
};

}  // namespace

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
    const std::string& name = attention.forward.name;
    std::vector<Partition*> passes = {&attention.forward};
    if (attention.backward) passes.push_back(&*attention.backward);
    if (std::any_of(passes.begin(), passes.end(), [&](const Partition* one) { return builder.is_in_cycle(*one); })) {
      set.reject(concat(name, ": ", kCycle));
      continue;
    }
    const TiedChoicePoints tied(set, alternatives, passes, builder.graph().operators.size());
    if (tied.together() > most_alternatives(attention.forward)) {
      set.reject(concat(name, ": its operators have ", tied.without(), " other alternatives, too many to try it with"));
      continue;
    }
    set.tie(attention.forward, *passes.back());
    const OperatorId any = attention.forward.operators.front();
    std::vector<std::string> names;
    for (Partition* const partition : passes) names.push_back(set.add(std::move(*partition)));
    if (names.size() > 1) set.bundle(std::move(names));
    alternatives[set.choice_point_of(any)] = tied.together();
  }
}

}  // namespace millrace
