#include "fusion/row_statistics.h"

#include <algorithm>

#include "base/text.h"
#include "base/unique_names.h"
#include "fusion/group.h"
#include "ir/attention.h"

namespace millrace {
namespace {

// For each row, the logarithm of the sum that a softmax divides by.
Operator log_sums_of(const Operator& softmax, TensorId log_sums) {
  Operator op;
  op.kind = OperatorKind::log_sum_exp;
  op.space = softmax.space;
  op.reduced = softmax.reduced;
  op.inputs = softmax.inputs;
  op.outputs = {{log_sums, {}}};
  for (const int index : indices_of(softmax.inputs[0])) {
    if (!softmax.reduced[as_index(index)]) op.outputs[0].axes.emplace_back(index);
  }
  return op;
}

// Shifts the ids of backward's operators.
class Renumbering {
 public:
  Renumbering(size_t forward, size_t added) : forward_(forward), added_(added) {}

  void apply(TrainingGraph& training) const {
    for (Kept& kept : training.kept) apply(kept.readers);
    apply(training.repeated);
  }

  void apply(FusedGraph& fused) const {
    for (FusedOperator& group : fused.groups) apply(group.members);
    for (Stacking& stacking : fused.stackings) {
      apply(stacking.contractions);
      apply(stacking.absorbed);
    }
    for (Epilogue& epilogue : fused.epilogues) {
      apply(epilogue.contraction);
      apply(epilogue.absorbed);
    }
    for (JoinedStack& stack : fused.joined_stacks) {
      apply(stack.operators);
      apply(stack.readers);
    }
  }

 private:
  void apply(OperatorId& op) const { op = OperatorId(op.at() < forward_ ? op.at() : op.at() + added_); }
  void apply(std::vector<OperatorId>& operators) const {
    for (OperatorId& op : operators) apply(op);
  }

  size_t forward_;
  size_t added_;
};

}  // namespace

Recomputed add_row_statistics(Recomputed made) {
  Graph& graph = made.training.graph;
  const FoundAttentions found = find_attentions(graph, Neighbourhood(made.training).leaves);
  if (found.attentions.empty()) return made;
  UniqueNames operator_names;
  UniqueNames tensor_names;
  for (const Operator& op : graph.operators) operator_names.claim(op.name);
  for (const Tensor& tensor : graph.tensors) tensor_names.claim(tensor.name);
  std::vector<Operator> statistics;
  for (const AttentionPattern& attention : found.attentions) {
    const std::string output = graph.tensor(attention.o.tensor).name;
    Operator op = log_sums_of(graph.operators[attention.softmax.at()], TensorId(graph.tensors.size()));
    op.name = operator_names.take(output + " log_sums", " ");
    Tensor log_sums{tensor_names.take(output + ".log_sums", "."), DType::float32, {}, TensorRole::computed, 0};
    for (const int index : indices_of(op.outputs[0])) log_sums.dims.push_back(op.space[as_index(index)]);
    graph.tensors.push_back(std::move(log_sums));
    statistics.push_back(std::move(op));
  }
  const auto begin = std::find_if(graph.operators.begin(), graph.operators.end(),
                                  [](const Operator& op) { return op.pass == Pass::backward; });
  const auto forward = static_cast<size_t>(begin - graph.operators.begin());
  const Renumbering renumbering(forward, statistics.size());
  renumbering.apply(made.training);
  renumbering.apply(made.fused);
  for (size_t k = 0; k < statistics.size(); ++k) made.training.statistics.emplace_back(forward + k);
  graph.operators.insert(begin, statistics.begin(), statistics.end());
  return made;
}

}  // namespace millrace
