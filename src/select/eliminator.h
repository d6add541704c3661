// The state of an elimination: tables of usages, and the class that joins them. The three files that implement it are
// eliminator_costs.cpp (lower bounds of what is not joined yet), eliminator_join.cpp (the join of two tables) and
// eliminate.cpp (the order of joins). Test: tests/select/select_test.cpp
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "select/dual.h"
#include "select/eliminate.h"
#include "select/problem.h"
#include "select/usage.h"

namespace millrace {

// Rows of numbers: the usage of each open tensor, then the alternative of each open choice point.
struct UsageTable {
  std::vector<size_t> tensors;
  std::vector<size_t> choice_points;
  std::vector<bool> joined;  // by partition
  std::vector<int> cells;    // row by row
  std::vector<double> cost;  // of what is joined, without conversions of open tensors
  // The origin of each row: rows of two tables, or a candidate of a partition (-1: not selected).
  std::vector<std::pair<int, int>> origin;
  const UsageTable* left = nullptr;
  const UsageTable* right = nullptr;
  size_t partition = 0;  // if there is neither left nor right

  size_t width() const { return tensors.size() + choice_points.size(); }
  size_t rows() const { return cost.size(); }
  const int* row(size_t k) const { return cells.data() + k * width(); }
};

template <class T>
bool contains(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

struct CellsHash {
  size_t operator()(const std::vector<int>& cells) const {
    size_t hash = 1469598103934665603ULL;
    for (const int cell : cells) hash = (hash ^ static_cast<size_t>(cell)) * 1099511628211ULL;
    return hash ^ (hash >> 29);
  }
};

// Rows that agree in everything that a join compares. Everything else only adds to the cost.
struct RowGroup {
  std::vector<int> shared;                      // usages of the shared tensors
  std::vector<int> choices;                     // alternatives of the table's choice points
  std::vector<std::pair<double, int>> members;  // the cost, including what the other tensors still cost, and the row
};

// One of two tables that are being joined.
struct JoinSide {
  const UsageTable* table = nullptr;
  std::vector<size_t> own;     // columns of tensors that the other side does not have
  std::vector<size_t> shared;  // columns of tensors that it has
  std::vector<RowGroup> groups;
};

// The state of one join.
struct Joining {
  JoinSide left;
  JoinSide right;
  std::vector<size_t> shared;                                    // tensors
  std::vector<bool> stays_open;                                  // one per shared tensor
  std::vector<size_t> choice_points;                             // of both sides, the left side's first
  std::vector<size_t> right_choice_points;                       // positions of the right side's in `choice_points`
  std::vector<size_t> open_choice_points;                        // positions in `choice_points`
  double rest = 0;                                               // the bound of everything that neither side touches
  std::vector<std::unordered_map<size_t, double>> shared_rests;  // their remaining cost, by alternatives and usage
  std::vector<int> joint;                                        // usages of the shared tensors, of two sets of rows
  std::vector<int> open_choices;                                 // the alternatives of the open choice points
  std::vector<int> cells;
  std::unordered_map<std::vector<int>, size_t, CellsHash> known;  // rows by cells
  std::unique_ptr<UsageTable> result = std::make_unique<UsageTable>();
};

class Eliminator {
 public:
  Eliminator(const Problem& problem, const DualBound& dual, const EliminationLimits& limits)
      : problem_(problem), dual_(dual), limits_(limits), usages_(problem.tensors.size()) {
    for (size_t t = 0; t < problem.tensors.size(); ++t)
      tensor_minima_.push_back(problem.tensors[t].touches.empty() ? 0.0 : dual.tensor_minimum(t));
    for (size_t s = 0; s < problem.choice_points.size(); ++s)
      choice_point_minima_.push_back(choice_point_rest(s, -1, {}));
    result_.candidates.assign(problem.partitions.size(), -1);
    result_.alternatives.assign(problem.choice_points.size(), -1);
  }

  // First joins the partitions of each choice point, then solves the remaining problem.
  Elimination run(bool first);

 private:
  bool make_leaves();
  bool join_pair(size_t i, size_t j);
  bool join_all();
  bool join_some();
  void go_on_condensed();
  bool join_choice_points();
  Problem condensed(std::vector<std::pair<const UsageTable*, std::vector<size_t>>>& rows_of) const;
  void choose_alternatives();
  // One choice point's columns in the sums below: several alternatives are open.
  bool has_choice(size_t choice_point) const { return problem_.choice_points[choice_point].size() > 1; }
  bool is_joined(const std::vector<bool>& joined, size_t partition) const {
    return !joined.empty() && joined[partition];
  }

  double choice_point_rest(size_t choice_point, int alternative, const std::vector<bool>& joined) const;
  double alternative_rest(size_t tensor, const ChoicePointTouch& choice_point, size_t alternative, size_t base,
                          const Usage& usage, const std::vector<bool>& joined) const;
  double tensor_rest(size_t tensor, const Usage& usage, const std::vector<bool>& joined,
                     const std::vector<size_t>& choice_points, const int* choices) const;
  double closing_cost(size_t tensor, const Usage& usage) const;
  double untouched(const UsageTable& table) const;
  bool all_joined(size_t tensor, const std::vector<bool>& joined) const;
  bool choice_point_joined(size_t choice_point, const std::vector<bool>& joined) const;

  UsageTable leaf(size_t partition);
  JoinSide side_of(const UsageTable& table, const std::vector<size_t>& shared) const;
  std::unique_ptr<UsageTable> join(const UsageTable& left, const UsageTable& right);
  void join_groups(Joining& joining, const RowGroup& x, const RowGroup& y);
  void add_row(Joining& joining, int x, int y, double closing);
  void keep_most_promising(UsageTable& table);
  double promise(const UsageTable& table, size_t row) const;
  void trace(const UsageTable& table, size_t row, Elimination& result) const;
  int alternative_of(size_t choice_point, const std::vector<int>& candidates) const;
  std::pair<size_t, size_t> next_pair() const;

  const Problem& problem_;
  const DualBound& dual_;
  const EliminationLimits& limits_;
  std::vector<Usages> usages_;
  std::vector<double> tensor_minima_;
  std::vector<double> choice_point_minima_;
  std::vector<std::unique_ptr<UsageTable>> kept_;
  std::vector<const UsageTable*> tables_;  // not joined yet
  size_t rows_ = 0;
  bool complete_ = true;
  Elimination result_;
};

}  // namespace millrace
