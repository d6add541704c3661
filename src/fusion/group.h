// A group of operators during fusion, with common labels for the indices of its members.
// Tests: tests/fusion/fuse_test.cpp, explain_test.cpp.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "autodiff/training_graph.h"
#include "base/or_rejected.h"
#include "fusion/fused_graph.h"

namespace millrace {

// The label of an index of extent one, which affects no loop.
inline constexpr int kNoLabel = -1;

struct Member {
  OperatorId op;
  std::vector<int> labels;      // one per index of the operator's space: the group's label, or kNoLabel
  std::vector<int64_t> shifts;  // one per index: it is the label's position less this
};

struct Group {
  std::vector<Member> members;  // in the graph's order
  std::vector<DimId> dims;      // one per label
};

using LabelSet = uint64_t;  // one bit per label
inline constexpr size_t kMaxLabels = 64;

// The training graph, with producers and readers of each tensor.
struct Neighbourhood {
  explicit Neighbourhood(const TrainingGraph& training);

  const Graph& graph;
  std::vector<OperatorId> producers;             // one per tensor
  std::vector<std::vector<OperatorId>> readers;  // one per tensor
  std::vector<bool> leaves;                      // one per tensor: a result or an argument's gradient
  bool plain = true;                             // all accesses are
  // Indices of extent one that a join places along a longer index: they have labels too.
  std::set<std::pair<OperatorId, size_t>> joined;

  const Operator& op(OperatorId id) const { return graph.operators[id.at()]; }
  bool is_contraction(OperatorId id) const { return op(id).kind == OperatorKind::contraction; }
};

Group single(const Neighbourhood& near, OperatorId id);

bool is_member(const Group& group, OperatorId op);

// The position on each axis of an access, by the labels.
std::vector<Position> positions_of(const Member& member, const Access& access);

// Both groups under common labels: an axis of a tensor that both access has one label. Without a shared tensor, the
// indices are matched in order. A part of a longer index gets a shift. Rejected if the two access a shared tensor along
// different indices.
OrRejected<Group> unite(const Neighbourhood& near, const Group& a, const Group& b);

// The loop nest of a group, as fused_graph.h describes it.
struct LoopNest {
  LabelSet outer = 0;
  std::vector<bool> across_grid;  // one per member: it reduces over the outer indices
  int loops = 1;
  int64_t row_points = 1;  // of the longest inner space
};

// The loop nest that runs all members; rejected if there is none.
OrRejected<LoopNest> find_loop_nest(const Neighbourhood& near, const Group& group);

// The data movement of a group.
struct Movement {
  std::vector<TensorId> reads;
  std::vector<TensorId> writes;
  std::vector<TensorId> interim;
  bool rereads = false;
  int64_t partial_words = 0;

  int64_t words = 0;
};
Movement movement_of(const Neighbourhood& near, const Group& group, const LoopNest& nest);

// Booleans per word when stored as bits. A word counts as half precision, so that decisions are the same for every
// type.
inline constexpr int64_t kBooleansPerWord = 16;

// Words of a tensor for the given storage of masks; computed booleans are stored as bits unless masks are words.
int64_t stored_words(const Neighbourhood& near, TensorId tensor, MaskStorage masks);

// The words of a movement for the given storage of masks.
int64_t words_with_masks(const Neighbourhood& near, const Group& group, const LoopNest& nest, const Movement& movement,
                         MaskStorage masks);

}  // namespace millrace
