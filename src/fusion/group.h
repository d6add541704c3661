// A group of operators during fusion, with common labels for the indices of its members.
// Tests: tests/fusion/fuse_test.cpp, explain_test.cpp.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "autodiff/training_graph.h"
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
  std::vector<int64_t> words;                    // one per tensor
  std::vector<bool> leaves;                      // one per tensor: a result or an argument's gradient
  bool plain = true;                             // all accesses are
  // Indices of extent one that a join places along a longer index: they have labels too.
  std::set<std::pair<OperatorId, size_t>> joined;

  const Operator& op(OperatorId id) const { return graph.operators[id.at()]; }
  bool is_contraction(OperatorId id) const { return op(id).kind == OperatorKind::contraction; }
};

Group single(const Neighbourhood& near, OperatorId id);

// Whether an index of extent one has a label. Such a label affects no loop, but it can become a part of a longer one.
bool has_unit_labels(const Neighbourhood& near, const Group& group);

Group without_unit_labels(const Neighbourhood& near, Group group);

bool is_member(const Group& group, OperatorId op);

// The position on each axis of an access, by the labels.
std::vector<Position> positions_of(const Member& member, const Access& access);

}  // namespace millrace
