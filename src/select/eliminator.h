// Finds the best selection of a problem by eliminating tensors one after another. A table has one row for each useful
// combination of what its partitions need from the tensors that are still open. The files that implement it are
// eliminator_costs.cpp (lower bounds of what is not joined yet), eliminator_leaves.cpp (the tables of single
// partitions), eliminator_join.cpp (the join of two tables), eliminator_prune.cpp (rows that are not needed),
// eliminator_order.cpp (which tables to join next), condense.cpp (the tables as a smaller problem) and eliminate.cpp
// (the search). Test: tests/select/select_test.cpp
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "select/dual.h"
#include "select/eliminate.h"
#include "select/problem.h"
#include "select/row_index.h"
#include "select/usage.h"

namespace millrace {

// Rows of numbers: the usage of each open tensor, then the alternative of each open choice point.
struct UsageTable {
  size_t id = 0;                // position in Eliminator::kept_; of a leaf: its partition
  size_t first = 0;             // the first of its partitions
  std::vector<size_t> tensors;  // open: some touch of each is not joined
  std::vector<size_t> choice_points;
  std::vector<size_t> touches;     // joined ones, one per tensor
  std::vector<size_t> partitions;  // joined ones, one per choice point
  double minima = 0;               // the part of the bound for everything that its partitions touch
  std::vector<int> cells;          // row by row
  std::vector<double> cost;        // of what is joined, without conversions of open tensors
  // The origin of each row: rows of two tables, or a candidate of a partition (-1: not selected).
  std::vector<std::pair<int, int>> origin;
  const UsageTable* left = nullptr;
  const UsageTable* right = nullptr;
  size_t position = 0;  // in Eliminator::tables_

  size_t width() const { return tensors.size() + choice_points.size(); }
  size_t rows() const { return cost.size(); }
  const int* row(size_t k) const { return cells.data() + k * width(); }
  void add(const std::vector<int>& row, double seconds, std::pair<int, int> from) {
    cells.insert(cells.end(), row.begin(), row.end());
    cost.push_back(seconds);
    origin.push_back(from);
  }
};

template <class T>
bool contains(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

struct CellsHash {
  size_t operator()(const std::vector<int>& cells) const {
    uint64_t hash = 1469598103934665603U;
    for (const int cell : cells) hash = (hash ^ static_cast<uint64_t>(cell)) * 1099511628211U;
    return static_cast<size_t>(hash ^ (hash >> 29U));
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
  std::vector<size_t> own_cells;  // by row: the number of its cells in these columns
  size_t own_count = 0;           // how many different ones there are
};

inline constexpr size_t kNoTable = static_cast<size_t>(-1);

// The partitions of one or two tables.
struct Joined {
  size_t left = 0;  // tables
  size_t right = 0;
};

// The state of one join.
struct Joining {
  JoinSide left;
  JoinSide right;
  Joined joined;
  std::vector<size_t> shared;                                     // tensors
  std::vector<bool> stays_open;                                   // one per shared tensor
  std::vector<size_t> choice_points;                              // of both sides, the left side's first
  std::vector<size_t> right_choice_points;                        // positions of the right side's in `choice_points`
  std::vector<size_t> open_choice_points;                         // positions in `choice_points`
  double rest = 0;                                                // the bound of everything that neither side touches
  double most = 0;                                                // costlier rows are dropped
  std::vector<std::unordered_map<size_t, double>> shared_rests;   // their remaining cost, by alternatives and usage
  std::vector<int> joint;                                         // usages of the shared tensors, of two sets of rows
  std::vector<int> open_choices;                                  // the alternatives of the open choice points
  std::vector<double> promises;                                   // by row: the least that a selection with it costs
  std::unordered_map<std::vector<int>, size_t, CellsHash> kinds;  // of shared cells and alternatives that stay open
  size_t kind = 0;                                                // of the rows that are being joined
  std::vector<RowKey> keys;                                       // by row
  std::optional<RowIndex> known;                                  // rows by key
  std::unique_ptr<UsageTable> result = std::make_unique<UsageTable>();
};

// A partition of a condensed problem: rows of a table, or a partition as it was.
struct CondensedPartition {
  const UsageTable* table = nullptr;  // null: `partition` as it was
  std::vector<size_t> rows;
  size_t partition = 0;
};

struct Condensed {
  Problem problem;
  std::vector<CondensedPartition> partitions;
};

class Eliminator {
 public:
  Eliminator(const Problem& problem, const DualBound& dual, const EliminationLimits& limits);

  // Joins the partitions of each choice point into one table, then the cheapest pairs of tables. What is left is a
  // smaller problem with a higher bound, which is solved in the same way.
  Elimination run();

  // Joins only where that is cheap. False if nothing fits together.
  bool reduce();
  // The problem that remains after `reduce`; it has the same selections.
  Condensed condensed() const;
  // A selection of the condensed problem as one of this problem.
  Elimination expanded(const Condensed& condensed, const Elimination& found) const;
  // Where `reduce` found that layouts cannot be reconciled.
  const std::vector<size_t>& stuck() const { return result_.stuck; }

 private:
  struct Pair {
    double weight = 0;
    size_t left = 0;  // tables
    size_t right = 0;
    bool operator<(const Pair& other) const { return weight > other.weight; }  // the least weight first
  };

  // Choice points with more combinations of candidates than this get rows for a part of their alternatives only.
  bool make_leaves(double most);
  // Replaces two tables by their join. False if that ends the search.
  bool join_pair(UsageTable& left, UsageTable& right);
  void replace(UsageTable& left, UsageTable& right, std::unique_ptr<UsageTable> joined);
  std::unique_ptr<UsageTable> useful_join(const UsageTable& left, const UsageTable& right);
  double combinations(size_t choice_point) const;
  // Joins the partitions of each choice point that has at most this many combinations of them.
  bool join_choice_points(double most);
  bool join_choice_point(std::vector<UsageTable*> tables);
  bool join_cheap_pairs();
  bool join_some();
  bool is_condensed() const;
  void solve_condensed();
  void choose_alternatives(Elimination& result) const;
  void add_candidates(Condensed& condensed, const UsageTable& table) const;
  void add_unjoined(Condensed& condensed, size_t choice_point) const;

  bool has_choice(size_t choice_point) const { return problem_.choice_points[choice_point].size() > 1; }
  bool is_joined(const Joined& joined, size_t partition) const {
    const size_t table = table_of(partition);
    return table == joined.left || table == joined.right;
  }
  size_t table_of(size_t partition) const;
  bool too_late();
  // The same, but asks the clock after some calls only.
  bool too_late_now_and_then();
  // Whether unpromising rows are dropped. If not, promises are not computed.
  bool is_bounded() const { return limits_.cost < kInfinity || limits_.beam < kAllRows; }

  double choice_point_rest(size_t choice_point, size_t alternative, const Joined& joined) const;
  double choice_point_minimum(size_t choice_point) const;
  double alternative_rest(size_t tensor, const ChoicePointTouch& choice_point, size_t alternative, size_t base,
                          const Usage& usage, const Joined& joined) const;
  double tensor_rest(size_t tensor, const Usage& usage, const Joined& joined, const std::vector<size_t>& choice_points,
                     const int* choices) const;
  double closing_cost(size_t tensor, const Usage& usage) const;
  double surplus(size_t tensor, const Usage& usage, const Usage& other) const;

  std::vector<double> alternative_bounds(size_t s, const std::vector<size_t>& tensors) const;
  void close_unpromising(size_t s, const std::vector<size_t>& tensors);
  void close_unpromising();
  bool has_choice_column(size_t partition) const;
  UsageTable empty_leaf(size_t partition, const std::vector<size_t>& touched) const;
  void add_candidate_rows(UsageTable& table, const std::vector<size_t>& touched);
  std::vector<size_t> affordable_rows(const UsageTable& table, size_t alternative) const;
  void add_alternative(UsageTable& table, const UsageTable& rows, size_t alternative) const;
  UsageTable leaf(size_t partition, bool every_alternative);
  JoinSide side_of(const UsageTable& table, const std::vector<size_t>& shared) const;
  void set_columns(Joining& joining) const;
  std::unique_ptr<UsageTable> join(const UsageTable& left, const UsageTable& right);
  void join_groups(Joining& joining, const RowGroup& x, const RowGroup& y);
  static void set_kind(Joining& joining);
  void add_row(Joining& joining, int x, int y, double closing, double promised);
  void keep_most_promising(Joining& joining);
  void drop_dominated(UsageTable& table) const;
  void trace(const UsageTable& table, size_t row, Elimination& result) const;
  int alternative_of(size_t choice_point, const std::vector<int>& candidates) const;

  void add_table(std::unique_ptr<UsageTable> table);
  void remove_table(UsageTable& table);
  void queue_pairs(const UsageTable& table);
  double weight_of(const UsageTable& table, const UsageTable& other) const;
  std::pair<size_t, size_t> lightest(const std::vector<UsageTable*>& tables) const;
  std::vector<size_t>& holders(std::vector<std::vector<size_t>>& lists, size_t column);
  // The next two tables with a common column; null if there are none.
  std::pair<UsageTable*, UsageTable*> next_pair();

  const Problem& problem_;
  const DualBound& dual_;
  const EliminationLimits limits_;
  std::vector<std::vector<bool>> open_;  // the problem's, without the alternatives that are not searched
  std::vector<Usages> usages_;
  std::vector<double> tensor_minima_;
  std::vector<double> choice_point_minima_;
  std::vector<size_t> choice_point_sizes_;         // partitions
  double minima_ = 0;                              // of everything together: the bound
  std::vector<std::unique_ptr<UsageTable>> kept_;  // by id
  std::vector<bool> alive_;                        // by id: not joined yet
  std::vector<UsageTable*> tables_;                // the alive ones
  mutable std::vector<size_t> joined_into_;        // by id; see table_of
  std::priority_queue<Pair> pairs_;
  std::vector<std::vector<size_t>> tensor_holders_;  // tables that have a column of the tensor; some are not alive
  std::vector<std::vector<size_t>> choice_point_holders_;
  size_t rows_ = 0;
  size_t steps_ = 0;
  Elimination result_;
};

}  // namespace millrace
