#include "fusion/verify.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "base/text.h"

namespace millrace {
namespace {

Error broken(const std::string& what) {
  return Error::make(ErrorKind::failed, concat("invalid fused graph: ", what),
                     "this is a bug in Millrace: please report it with the program");
}

bool are(OperatorKind kind, const Graph& graph, std::span<const OperatorId> operators) {
  return std::all_of(operators.begin(), operators.end(), [&](OperatorId op) {
    return op.at() < graph.operators.size() && graph.operators[op.at()].kind == kind;
  });
}

bool is_join_after_copies(const Graph& graph, std::span<const OperatorId> operators) {
  return !operators.empty() && are(OperatorKind::join, graph, operators.last(1)) &&
         are(OperatorKind::copy, graph, operators.first(operators.size() - 1));
}

// Alternatives name operators by ids, which passes over the graph may change.
const char* complaint_of_alternatives(const Graph& graph, const FusedGraph& fused) {
  for (const Stacking& stacking : fused.stackings) {
    if (!are(OperatorKind::contraction, graph, stacking.contractions))
      return "a stacking has an operator that is no contraction";
  }
  for (const Epilogue& epilogue : fused.epilogues) {
    if (!are(OperatorKind::contraction, graph, {&epilogue.contraction, 1}))
      return "an epilogue is of an operator that is no contraction";
  }
  for (const JoinedStack& stack : fused.joined_stacks) {
    if (!are(OperatorKind::contraction, graph, stack.readers))
      return "an operator that is no contraction reads a stack";
    if (!is_join_after_copies(graph, stack.operators)) return "a stack is made of operators that are no join";
  }
  return nullptr;
}

}  // namespace

Result<Done> verify(const TrainingGraph& training, const FusedGraph& fused) {
  const Graph& graph = training.graph;
  const std::vector<OperatorId> producers = producers_of(graph);
  std::vector<bool> ran(graph.operators.size(), false);
  size_t count = 0;
  int64_t words = 0;
  for (const FusedOperator& group : fused.groups) {
    if (group.members.empty() || group.index_of.size() != group.members.size())
      return broken(concat(group.name, " has no members, or not one index map per member"));
    for (const OperatorId member : group.members) {
      const Operator& op = graph.operators[member.at()];
      if (ran[member.at()]) return broken(concat(op.name, " is in two groups"));
      if (op.pass != group.pass) return broken(concat(op.name, " is not in its group's pass"));
      if (op.kind == OperatorKind::contraction && group.members.size() > 1)
        return broken(concat(op.name, " is a contraction in a kernel"));
      for (const Access& input : op.inputs) {
        const OperatorId producer = producers[input.tensor.at()];
        if (producer.valid() && !ran[producer.at()])
          return broken(concat(op.name, " runs before ", graph.operators[producer.at()].name));
      }
      ran[member.at()] = true;
      ++count;
    }
    words += group.words_after;
    if (group.words_after > group.words_before)
      return broken(concat(group.name, " moves more words than its members as separate kernels"));
  }
  for (const OperatorId statistic : training.statistics) {
    if (ran[statistic.at()]) return broken(concat(graph.operators[statistic.at()].name, " is in a group"));
    ++count;
  }
  if (count != graph.operators.size()) return broken("an operator is in no group");
  if (words != fused.words_after) return broken("the groups' words do not add up");
  if (const char* complaint = complaint_of_alternatives(graph, fused)) return broken(complaint);
  return Done{};
}

}  // namespace millrace
