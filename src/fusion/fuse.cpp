#include "fusion/fuse.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "fusion/alternatives.h"
#include "fusion/fuser.h"
#include "fusion/movement.h"
#include "fusion/names.h"

namespace millrace {
namespace {

// A contraction counts as a separate loop nest, since a library runs it.
LoopNest nest_of(const Neighbourhood& near, const FusionGroup& group) {
  if (near.is_contraction(group.group.members.front().op)) return {~LabelSet{0}, {}, false, 1};
  return *find_loop_nest(near.graph, group.group.dims, group.summary.spaces);
}

Movement movement_of(const Neighbourhood& near, const FusionGroup& group, const LoopNest& nest) {
  const std::vector<OperatorId> members = operators_of(group.group);
  const int loops = count_loops(near.graph, group.group.dims, group.summary.spaces, nest, members);
  return movement_of(near, group.group, nest, loops);
}

Implementation implementation_of(const Neighbourhood& near, const Group& group, const LoopNest& nest, size_t label) {
  bool reduced = false;
  bool used = false;  // after the reduction, by the same row
  for (const Member& member : group.members) {
    const Operator& op = near.op(member.op);
    for (size_t index = 0; index < member.labels.size(); ++index) {
      if (member.labels[index] != static_cast<int>(label) || !op.reduced[index]) continue;
      reduced = true;
      for (const Access& output : op.outputs) {
        const std::vector<OperatorId>& readers = near.readers[output.tensor.at()];
        used = used || runs_along(output, index) ||
               std::any_of(readers.begin(), readers.end(), [&](OperatorId reader) { return is_member(group, reader); });
      }
    }
  }
  const bool outer = (nest.outer >> label) & 1;
  if (near.is_contraction(group.members.front().op)) return reduced ? Implementation::loop : Implementation::block;
  if (outer)
    return reduced                          ? Implementation::grid_reduction
           : label + 1 == group.dims.size() ? Implementation::thread
                                            : Implementation::block;
  constexpr int64_t kWarpRow = 1024;  // 32 lanes with 32 elements each
  if (used) return nest.row_points <= kWarpRow ? Implementation::warp_reduction : Implementation::block_reduction;
  return reduced ? Implementation::loop : Implementation::thread;
}

FusedOperator describe(const Neighbourhood& near, const Group& group, const LoopNest& nest, const Movement& movement) {
  FusedOperator fused;
  fused.kind = near.is_contraction(group.members.front().op) ? FusedKind::contraction : FusedKind::kernel;
  fused.pass = near.op(group.members.front().op).pass;
  for (const Member& member : group.members) {
    fused.members.push_back(member.op);
    fused.index_of.push_back(member.labels);
    fused.shift_of.push_back(member.shifts);
    const FusionGroup alone = summarized(near, single(near, member.op));
    fused.words_before += movement_of(near, alone, nest_of(near, alone)).words;
  }
  for (size_t label = 0; label < group.dims.size(); ++label)
    fused.space.push_back(
        {group.dims[label], ((nest.outer >> label) & 1) != 0, implementation_of(near, group, nest, label)});
  fused.name = derived_name(near.graph, fused.members);
  if (fused.kind == FusedKind::kernel) fused.paper_name = paper_name(near.graph, fused.members);
  fused.reads = movement.reads;
  fused.writes = movement.writes;
  fused.interim = movement.interim;
  fused.loops = movement.loops;
  fused.rereads = movement.rereads;
  fused.partial_words = movement.partial_words;
  fused.words_after = movement.words;
  return fused;
}

void add_group(const Neighbourhood& near, const FusionGroup& group, FusedGraph& fused) {
  const LoopNest nest = nest_of(near, group);
  const Movement movement = movement_of(near, group, nest);
  fused.groups.push_back(describe(near, group.group, nest, movement));
  fused.words_before += fused.groups.back().words_before;
  fused.words_after += fused.groups.back().words_after;
  for (const MaskStorage masks : {MaskStorage::words, MaskStorage::bits, MaskStorage::regenerated}) {
    const int64_t words = words_with_masks(near, group.group, nest, movement, masks);
    fused.groups.back().words_after_by_mask.at(static_cast<size_t>(masks)) = words;
    fused.words_after_by_mask.at(static_cast<size_t>(masks)) += words;
  }
}

// The words that two operators of one group save by being fused.
std::string saving_of(const Neighbourhood& near, const FusedOperator& group, OperatorId first, OperatorId second) {
  std::set<TensorId> touched;
  for (const Access& access : near.op(second).inputs) touched.insert(access.tensor);
  for (const Access& output : near.op(first).outputs) {
    if (!touched.contains(output.tensor)) continue;
    const Tensor& tensor = near.graph.tensor(output.tensor);
    const bool interim = std::find(group.interim.begin(), group.interim.end(), output.tensor) != group.interim.end();
    const int64_t words = words_of(near.graph, output.tensor);
    return interim ? concat(tensor.name, " stays in registers: ", 2 * words, " fewer words")
                   : concat(tensor.name, " is written but not read back: ", words, " fewer words");
  }
  for (const Access& input : near.op(first).inputs) {
    const int64_t words = words_of(near.graph, input.tensor);
    if (words > 0 && touched.contains(input.tensor))
      return concat(near.graph.tensor(input.tensor).name, " is read once for both: ", words, " fewer words");
  }
  return "one launch less";
}

std::string reason_to_stay_separate(Fuser& fuser, size_t a, size_t b) {
  const OrRejected<Fuser::Merge> merge = fuser.try_merge(a, b);
  if (!merge) return merge.reason();
  return fuser.makes_cycle(a, b)
             ? "an operator between them, such as a contraction, reads one and writes an input of the other"
             : "compatible";
}

}  // namespace

FusedGraph leave_separate(const TrainingGraph& training) {
  const Neighbourhood near(training);
  FusedGraph fused;
  for (size_t k = 0; k < near.graph.operators.size(); ++k)
    add_group(near, summarized(near, without_unit_labels(near, single(near, OperatorId(k)))), fused);
  return fused;
}

FusedGraph fuse(const TrainingGraph& training) {
  const Neighbourhood near(training);
  Fuser fuser(near);
  fuser.run();
  FusedGraph fused;
  for (const size_t number : fuser.order()) add_group(near, fuser.group(number), fused);
  fused.stackings = find_stackings(near);
  fused.epilogues = find_epilogues(near);
  fused.joined_stacks = find_joined_stacks(near, fused.groups);
  return fused;
}

std::vector<size_t> group_numbers(const FusedGraph& fused) {
  size_t operators = 0;
  for (const FusedOperator& group : fused.groups) {
    for (const OperatorId member : group.members) operators = std::max(operators, member.at() + 1);
  }
  std::vector<size_t> numbers(operators, fused.groups.size());
  for (size_t number = 0; number < fused.groups.size(); ++number) {
    for (const OperatorId member : fused.groups[number].members) numbers[member.at()] = number;
  }
  return numbers;
}

std::vector<PairExplanation> explain(const TrainingGraph& training, const FusedGraph& fused) {
  const Neighbourhood near(training);
  Fuser fuser(near);
  fuser.restore(fused);
  const std::vector<size_t> group_of = group_numbers(fused);
  std::vector<PairExplanation> pairs;
  std::map<std::pair<size_t, size_t>, std::string> known;  // one answer for all pairs of two groups
  for (size_t k = 0; k < near.graph.operators.size(); ++k) {
    const OperatorId first(k);
    for (const OperatorId second : fuser.neighbours(first)) {
      if (!(first < second)) continue;
      if (near.is_contraction(first) && near.is_contraction(second)) continue;
      const size_t a = fuser.group_of(first);
      const size_t b = fuser.group_of(second);
      PairExplanation pair{first, second, a == b, {}};
      if (pair.fused) {
        pair.reason = saving_of(near, fused.groups[group_of[k]], first, second);
      } else {
        std::string& reason = known[{std::min(a, b), std::max(a, b)}];
        if (reason.empty()) reason = reason_to_stay_separate(fuser, a, b);
        pair.reason = reason;
      }
      pairs.push_back(std::move(pair));
    }
  }
  return pairs;
}

}  // namespace millrace
