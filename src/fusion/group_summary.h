// What fusion must know of a group, so that it need not visit each member: trying to merge two groups takes time in
// proportion to the tensors that both access. Merging keeps it up to date.
// Tests: tests/fusion/group_summary_test.cpp.
#pragma once

#include <map>
#include <vector>

#include "fusion/group.h"
#include "fusion/loop_nest.h"

namespace millrace {

struct LabelledAccess {
  OperatorId op;               // the first member that makes it
  std::vector<Position> axes;  // by the labels
  bool plain = true;
};

// How a group accesses one tensor that counts words.
struct TensorSummary {
  std::vector<LabelledAccess> accesses;  // different ones, in the graph's order
  std::vector<TensorUse> uses;           // reads that touch different elements; enough of them to touch all
  std::vector<LabelSet> read_over;       // the spaces of the members that read it, sorted
  LabelSet written_over = 0;             // the space of the member that writes it
  bool written = false;
  size_t readers = 0;   // members that read it
  OperatorId gather;    // the first member that reads it at positions that depend on data
  int64_t touched = 0;  // words that the reads touch
};

// What a group moves to and from memory if each row is read once and nothing is reduced across the grid.
struct MovedOnce {
  size_t tensors = 0;
  int64_t words = 0;
};

struct GroupSummary {
  std::map<TensorId, TensorSummary> tensors;
  GroupSpaces spaces;
  LabelSet whole = 0;               // labels of members that cannot run along a part of an index
  OperatorId scatter;               // a member that sums into positions that depend on data
  std::vector<OperatorKind> kinds;  // of the members, sorted
  OperatorId first_by_name;
  Member first_by_kind;  // does not depend on the order of the operators
  MovedOnce once;
  int64_t words = 0;  // that it moves; 0 if it has no loop nest
};

struct FusionGroup {
  Group group;
  GroupSummary summary;
};

FusionGroup summarized(const Neighbourhood& near, Group group);

std::vector<OperatorId> operators_of(const Group& group);

// Only an elementwise operator can run along a part of an index: it computes nothing elsewhere.
bool runs_along_whole_indices(OperatorKind kind);

// A tensor that two groups access, and how each does.
struct SharedTensor {
  TensorId tensor;
  const TensorSummary* a = nullptr;
  const TensorSummary* b = nullptr;
};

// The movement of a tensor by a group, or by two groups together.
MovedOnce moved_once(const Neighbourhood& near, TensorId tensor, const TensorSummary& summary);
MovedOnce moved_together(const Neighbourhood& near, const SharedTensor& shared);

// The spaces of two groups with common labels.
GroupSpaces united(const Neighbourhood& near, const GroupSpaces& a, const GroupSpaces& b,
                   const std::vector<SharedTensor>& shared);

// Adds a group with common labels to `a`, except for what the two move.
void absorb(const Neighbourhood& near, GroupSummary& a, GroupSummary b);

// The words of a loop nest beyond those of MovedOnce: partial sums of reductions across the grid, and rows that are too
// long for fast memory, which every loop reads again.
int64_t partial_words(const Neighbourhood& near, const std::vector<DimId>& dims, const GroupSpaces& spaces,
                      const LoopNest& nest);
bool may_reread(const LoopNest& nest);
int64_t reread_words(const Neighbourhood& near, const FusionGroup& group, const LoopNest& nest);

}  // namespace millrace
