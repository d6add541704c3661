// Matches the labels of two groups that are to share a loop nest. Tests: tests/fusion/fuse_test.cpp, explain_test.cpp.
#pragma once

#include <set>
#include <vector>

#include "fusion/group.h"

namespace millrace {

// Where a label of b is on a label of a: b's position is a's minus the shift.
struct Match {
  int label = kNoLabel;
  int64_t shift = 0;

  bool operator==(const Match&) const = default;
};

// Matches b's labels with a's, one to one. Of two labels, one contains the other.
class LabelMatching {
 public:
  // `a`, `b`: the dimensions of the labels.
  LabelMatching(const Graph& graph, const std::vector<DimId>& a, const std::vector<DimId>& b)
      : graph_(graph), a_(a), b_(b), to_a_(b.size()), taken_(a.size(), false) {}

  bool match(int label_b, const Match& match);

  // Two positions on one axis. The terms are paired by stride, and the outermost may be shifted.
  bool match(const Position& b, const Position& a);

  // The same, but without a shift, and only if nothing is known about the labels yet.
  void match_if_free(const Position& b, const Position& a);

  const std::vector<Match>& to_a() const { return to_a_; }

  // Whether a label of extent one, which the other group reads without an index, would become one point of a longer
  // label. The other group would then read the value at other points too, where nothing computes it.
  bool loses_a_unit() const;

 private:
  void drop_units(const std::vector<DimId>& dims, std::vector<IndexTerm>& terms, std::set<int>& units) const;
  int64_t extent_of(const std::vector<DimId>& dims, int label) const { return graph_.extent(dims[as_index(label)]); }

  const Graph& graph_;
  const std::vector<DimId>& a_;
  const std::vector<DimId>& b_;
  std::vector<Match> to_a_;
  std::vector<bool> taken_;
  std::set<int> units_a_;  // labels of extent one that the other group's access lacks
  std::set<int> units_b_;
};

}  // namespace millrace
