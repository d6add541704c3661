// Finds the loop nest of a group, or says why there is none: the paper's compatibility of iteration spaces, and partial
// fusion. Tests: tests/fusion/explain_test.cpp, group_summary_test.cpp.
#pragma once

#include <utility>
#include <vector>

#include "base/or_rejected.h"
#include "fusion/group.h"

namespace millrace {

// A member that reduces.
struct Reduction {
  OperatorId op;
  LabelSet all = 0;
  LabelSet reduced = 0;
  LabelSet mapped = 0;       // reduced labels that an output runs along: it uses its reduction at each point of the row
  bool always_maps = false;  // it uses its reduction inside the row although no output runs along it
  bool used_inside = false;  // another member reads its output
  int64_t output_words = 0;
};

// The iteration spaces of a group's members. Labels of extent one are included; they affect no loop.
struct GroupSpaces {
  std::vector<LabelSet> distinct;                    // sorted
  std::vector<Reduction> reductions;                 // in the graph's order
  std::vector<std::pair<LabelSet, LabelSet>> flows;  // sorted: from a space to another, one member passes a tensor
  std::pair<OperatorId, LabelSet> first;             // of the first member
  std::pair<OperatorId, LabelSet> last;              // of the last member
};

// The loop nest of a group, as fused_graph.h describes it.
struct LoopNest {
  LabelSet outer = 0;
  std::vector<OperatorId> across_grid;  // sorted: members that reduce over the outer indices
  bool reduces_rows = false;            // a member reduces over a row: there may be more than one loop
  int64_t row_points = 1;               // of the longest inner space
};

// The loop nest that runs all members; rejected if there is none. `dims`: one per label.
OrRejected<LoopNest> find_loop_nest(const Graph& graph, const std::vector<DimId>& dims, const GroupSpaces& spaces);

// The number of loops over a row: an operator that reads a reduction runs in the next loop; a normalization takes two.
// `members`: in the graph's order.
int count_loops(const Graph& graph, const std::vector<DimId>& dims, const GroupSpaces& spaces, const LoopNest& nest,
                const std::vector<OperatorId>& members);

}  // namespace millrace
