// A group of operators while fusion grows it: its members' indices under common labels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autodiff/training_graph.h"
#include "fusion/fused_graph.h"

namespace millrace {

// An index of extent one belongs to no space: it changes no loop.
inline constexpr int kNoLabel = -1;

struct Member {
  OperatorId op;
  std::vector<int> labels;  // one an index of the operator's space: the group's label, or kNoLabel
};

struct Group {
  std::vector<Member> members;  // in the graph's order
  std::vector<DimId> dims;      // one a label
};

using LabelSet = uint64_t;  // a bit a label
inline constexpr size_t kMaxLabels = 64;

// What fusion asks of the training graph again and again.
struct Neighbourhood {
  explicit Neighbourhood(const TrainingGraph& training);

  const Graph& graph;
  std::vector<OperatorId> producers;             // one a tensor
  std::vector<std::vector<OperatorId>> readers;  // one a tensor
  std::vector<bool> leaves;                      // one a tensor: a result or an argument's gradient

  const Operator& op(OperatorId id) const { return graph.operators[id.at()]; }
  bool is_contraction(OperatorId id) const { return op(id).kind == OperatorKind::contraction; }
};

Group single(const Neighbourhood& near, OperatorId id);

bool is_member(const Group& group, OperatorId op);

// The label of each axis that an access runs along.
std::vector<int> labels_of(const Member& member, const Access& access);

// Both groups under common labels: axes of tensors that both touch run along one label. Without a shared tensor the
// indices are matched in order. Nothing, and a reason, where the two run along a shared tensor in different ways.
std::optional<Group> unite(const Neighbourhood& near, const Group& a, const Group& b, std::string& reason);

// The loop nest of a group, as fused_graph.h describes it.
struct LoopNest {
  LabelSet outer = 0;
  std::vector<bool> across_grid;  // one a member: it reduces over the outer indices
  int loops = 1;
  int64_t row_points = 1;  // of the longest inner space
};

// The nest that carries out all members; nothing, and a reason, where there is none.
std::optional<LoopNest> find_loop_nest(const Neighbourhood& near, const Group& group, std::string& reason);

// What a group moves.
struct Movement {
  std::vector<TensorId> reads;
  std::vector<TensorId> writes;
  std::vector<TensorId> interim;
  bool rereads = false;
  int64_t partial_words = 0;

  int64_t words = 0;
};
Movement movement_of(const Neighbourhood& near, const Group& group, const LoopNest& nest);

// That are a word as bits: of half precision, so that what is decided by it is the same for every type.
inline constexpr int64_t kBooleansAWord = 16;

// Words of a tensor when masks are stored in the given way, and computed booleans as bits where masks are not words.
int64_t stored_words(const Neighbourhood& near, TensorId tensor, MaskStorage masks);

// The words of a movement under another storage of masks.
int64_t words_with_masks(const Neighbourhood& near, const Group& group, const LoopNest& nest, const Movement& movement,
                         MaskStorage masks);

}  // namespace millrace
