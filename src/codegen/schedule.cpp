#include "codegen/schedule.h"

#include <algorithm>
#include <map>

namespace millrace {
namespace {

class Scheduler {
 public:
  Scheduler(const Graph& graph, const Partition& partition, const RowShape& rows, const std::vector<int>& loops)
      : graph_(graph), partition_(partition), rows_(rows), loops_(loops) {}

  Schedule run() {
    for (size_t k = 0; k < partition_.members.size(); ++k) {
      describe(static_cast<int>(k));
      place_member(static_cast<int>(k));
    }
    find_carried();
    return std::move(schedule_);
  }

 private:
  const Operator& op(int member) const { return graph_.operators[partition_.members[as_index(member)].at()]; }

  void describe(int member) {
    std::vector<int> inner;
    std::vector<int> reduced;
    const std::vector<int>& index_of = partition_.index_of[as_index(member)];
    for (const int index : loops_) {
      const auto at = std::find(index_of.begin(), index_of.end(), index);
      if (at == index_of.end()) continue;
      if (rows_.inner[as_index(index)]) inner.push_back(index);
      if (op(member).reduced[as_index(at - index_of.begin())]) reduced.push_back(index);
    }
    for (size_t output = 0; output < op(member).outputs.size(); ++output)
      made_by_[op(member).outputs[output].tensor] = {NestValue::Kind::output, member, static_cast<int>(output)};
    schedule_.inner.push_back(std::move(inner));
    schedule_.reduced.push_back(std::move(reduced));
  }

  void place_member(int member) {
    const std::vector<int>& inner = schedule_.inner[as_index(member)];
    const std::vector<int>& reduced = schedule_.reduced[as_index(member)];
    const bool reduces = !reduced.empty();
    const bool in_row = reduces && reduced == inner;
    size_t not_before = 0;
    for (const Instruction& instruction : recipe_of(op(member))) {
      const bool once = instruction.kind == InstructionKind::row || instruction.kind == InstructionKind::row_map;
      const bool across = reduces && !in_row;
      if (across && once) continue;  // the second stage of the reduction computes it
      const bool at_points = !inner.empty() && !(once && in_row);
      const size_t segment =
          place({member, instruction, across && is_reduction(instruction.kind)}, at_points, inner, not_before);
      if (instruction.kind == InstructionKind::map)
        not_before = segment;  // so that a dropout's mask is in the same loop as its output
      const NestValue made = value_of(member, instruction);
      made_in_[made] = segment;
      if (!at_points || (is_reduction(instruction.kind) && in_row)) schedule_.once_a_row.insert(made);
    }
  }

  static NestValue value_of(int member, const Instruction& instruction) {
    switch (instruction.kind) {
      case InstructionKind::map:
      case InstructionKind::row_map: return {NestValue::Kind::output, member, instruction.target};
      case InstructionKind::temporary: return {NestValue::Kind::temporary, member, instruction.target};
      default: return {NestValue::Kind::row, member, instruction.target};
    }
  }

  // The operands of an instruction that the kernel computes itself.
  std::vector<NestValue> needs_of(int member, const Instruction& instruction) const {
    std::vector<NestValue> needs;
    for (const auto& [token, number] : operands_in(instruction.expression)) {
      if (token == '%') needs.push_back({NestValue::Kind::row, member, number});
      if (token == '@') needs.push_back({NestValue::Kind::temporary, member, number});
      if (token != '$') continue;
      const auto made = made_by_.find(op(member).inputs[as_index(number)].tensor);
      if (made != made_by_.end()) needs.push_back(made->second);
    }
    return needs;
  }

  size_t place(PlacedInstruction placed, bool at_points, const std::vector<int>& inner, size_t not_before) {
    size_t first = not_before;
    for (const NestValue& need : needs_of(placed.member, placed.instruction)) {
      const size_t made = made_in_.at(need);
      const bool waits = schedule_.once_a_row.contains(need) && schedule_.segments[made].loop;
      first = std::max(first, made + (waits ? 1 : 0));
    }
    std::vector<Segment>& segments = schedule_.segments;
    for (size_t k = first; k < segments.size(); ++k) {
      if (segments[k].loop != at_points || (at_points && segments[k].indices != inner)) continue;
      segments[k].instructions.push_back(std::move(placed));
      return k;
    }
    segments.push_back({at_points, at_points ? inner : std::vector<int>(), {std::move(placed)}});
    return segments.size() - 1;
  }

  void find_carried() {
    for (size_t k = 0; k < schedule_.segments.size(); ++k) {
      for (const PlacedInstruction& placed : schedule_.segments[k].instructions) {
        for (const NestValue& need : needs_of(placed.member, placed.instruction)) {
          if (!schedule_.once_a_row.contains(need) && made_in_.at(need) != k) schedule_.carried.insert(need);
        }
      }
    }
  }

  const Graph& graph_;
  const Partition& partition_;
  const RowShape& rows_;
  const std::vector<int>& loops_;
  std::map<TensorId, NestValue> made_by_;
  std::map<NestValue, size_t> made_in_;
  Schedule schedule_;
};

}  // namespace

std::vector<std::pair<char, int>> operands_in(const std::string& expression) {
  std::vector<std::pair<char, int>> operands;
  for (size_t at = 0; at + 1 < expression.size(); ++at) {
    const char token = expression[at];
    if (token == '$' || token == '%' || token == '@') operands.emplace_back(token, expression[at + 1] - '0');
  }
  return operands;
}

Schedule schedule_of(const Graph& graph, const Partition& partition, const RowShape& rows,
                     const std::vector<int>& loops) {
  return Scheduler(graph, partition, rows, loops).run();
}

}  // namespace millrace
