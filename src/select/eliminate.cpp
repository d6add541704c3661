#include "select/eliminate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <unordered_map>

#include "base/id.h"
#include "select/usage.h"

namespace millrace {
namespace {

constexpr size_t kFew = 5;       // tables that are joined to one without another bound
constexpr size_t kLarge = 2000;  // rows after which another bound is worth its time

// Rows of numbers: the usage of each open tensor, then the alternative of each open choice point.
struct Table {
  std::vector<size_t> tensors;
  std::vector<size_t> choice_points;
  std::vector<bool> joined;  // by partition
  std::vector<int> cells;    // row by row
  std::vector<double> cost;  // of what is joined, without conversions of open tensors
  // Where each row came from: rows of two tables, or a way of a partition (-1: not in the cover).
  std::vector<std::pair<int, int>> origin;
  const Table* left = nullptr;
  const Table* right = nullptr;
  size_t partition = 0;  // without left and right

  size_t width() const { return tensors.size() + choice_points.size(); }
  size_t rows() const { return cost.size(); }
  const int* row(size_t k) const { return cells.data() + k * width(); }
};

struct CellsHash {
  size_t operator()(const std::vector<int>& cells) const {
    size_t hash = 1469598103934665603ULL;
    for (const int cell : cells) hash = (hash ^ static_cast<size_t>(cell)) * 1099511628211ULL;
    return hash ^ (hash >> 29);
  }
};

template <class T>
bool contains(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// Rows that agree in everything that joining looks at; what else they have only adds up.
struct RowGroup {
  std::vector<int> shared;                      // usages of the shared tensors
  std::vector<int> choices;                     // alternatives of the table's choice points
  std::vector<std::pair<double, int>> members;  // the cost with what the other tensors still cost, and the row
};

// One of two tables that are joined.
struct Side {
  const Table* table = nullptr;
  std::vector<size_t> own;     // columns of tensors that the other side does not have
  std::vector<size_t> shared;  // columns of those that it has
  std::vector<RowGroup> groups;
};

// What joining two tables works on.
struct Joining {
  Side left;
  Side right;
  std::vector<size_t> shared;                                    // tensors
  std::vector<bool> stays_open;                                  // one a shared tensor
  std::vector<size_t> choice_points;                             // of both sides, the left's first
  std::vector<size_t> right_choice_points;                       // where each of the right's is in `choice points`
  std::vector<size_t> open_choice_points;                        // positions in `choice points`
  double rest = 0;                                               // the bound of everything that neither side touches
  std::vector<std::unordered_map<size_t, double>> shared_rests;  // what they still cost, by alternatives and usage
  std::vector<int> joint;                                        // usages of the shared tensors, of two groups
  std::vector<int> open_choices;                                 // and the alternatives of the open choice points
  std::vector<int> cells;
  std::unordered_map<std::vector<int>, size_t, CellsHash> known;  // rows by cells
  std::unique_ptr<Table> result = std::make_unique<Table>();
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

  // Some joins, the parts of each choice point at first, and then what that leaves as a problem of its own.
  Elimination run(bool first);

 private:
  bool make_leaves();
  bool join_pair(size_t i, size_t j);
  bool join_all();
  bool join_some();
  void go_on_condensed();
  bool join_choice_points();
  Problem condensed(std::vector<std::pair<const Table*, std::vector<size_t>>>& rows_of) const;
  void choose_alternatives();
  // One choice point's columns of the sums below: open alternatives of several.
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
  double untouched(const Table& table) const;
  bool all_joined(size_t tensor, const std::vector<bool>& joined) const;
  bool choice_point_joined(size_t choice_point, const std::vector<bool>& joined) const;

  Table leaf(size_t partition);
  Side side_of(const Table& table, const std::vector<size_t>& shared) const;
  std::unique_ptr<Table> join(const Table& left, const Table& right);
  void join_groups(Joining& joining, const RowGroup& x, const RowGroup& y);
  void add_row(Joining& joining, int x, int y, double closing);
  void keep_most_promising(Table& table);
  double promise(const Table& table, size_t row) const;
  void trace(const Table& table, size_t row, Elimination& result) const;
  int alternative_of(size_t choice_point, const std::vector<int>& candidates) const;
  std::pair<size_t, size_t> next_pair() const;

  const Problem& problem_;
  const DualBound& dual_;
  const EliminationLimits& limits_;
  std::vector<Usages> usages_;
  std::vector<double> tensor_minima_;
  std::vector<double> choice_point_minima_;
  std::vector<std::unique_ptr<Table>> kept_;
  std::vector<const Table*> tables_;  // not joined yet
  size_t rows_ = 0;
  bool complete_ = true;
  Elimination result_;
};

// The least that the parts of a choice point that are not joined cost, prices included; alternative -1: whichever.
double Eliminator::choice_point_rest(size_t choice_point, int alternative, const std::vector<bool>& joined) const {
  double least = kInfinity;
  for (size_t a = 0; a < problem_.choice_points[choice_point].size(); ++a) {
    if (!problem_.open[choice_point][a] || (alternative >= 0 && as_index(alternative) != a)) continue;
    double sum = 0;
    for (const size_t p : problem_.choice_points[choice_point][a]) {
      if (!is_joined(joined, p)) sum += dual_.partition_minimum(p);
    }
    least = std::min(least, sum);
  }
  return least;
}

double Eliminator::alternative_rest(size_t t, const ChoicePointTouch& choice_point, size_t alternative, size_t base,
                                    const Usage& usage, const std::vector<bool>& joined) const {
  const ProblemTensor& tensor = problem_.tensors[t];
  if (!problem_.open[choice_point.choice_point][alternative]) return kInfinity;
  double sum = 0;
  bool written = false;
  for (const size_t k : choice_point.touches[alternative]) {
    const Touch& touch = tensor.touches[k];
    if (joined[touch.partition]) continue;
    double least = dual_.touch_minimum(t, k, base);
    if (!touch.writes) {
      for (const int l : usage.read) least = std::min(least, dual_.touch_free(t, k, as_index(l)));
    }
    written |= touch.writes;
    sum += least;
  }
  const bool writers = contains(std::vector<bool>(choice_point.writes), true);
  if (writers && base < tensor.layouts && !written && usage.base < 0) return kInfinity;
  return sum;
}

// The least that an open tensor still costs, given what is asked of it already.
double Eliminator::tensor_rest(size_t t, const Usage& usage, const std::vector<bool>& joined,
                               const std::vector<size_t>& choice_points, const int* choices) const {
  const ProblemTensor& tensor = problem_.tensors[t];
  const bool pin = tensor.written && tensor.pinned != kNoLayout;
  double result = kInfinity;
  for (size_t b = 0; b < tensor.bases(); ++b) {
    const bool absent = b == tensor.layouts;
    if (!dual_.can_lie(t, b) || (usage.base >= 0 && as_index(usage.base) != b) || (absent && !usage.read.empty()))
      continue;
    double sum = 0;
    bool pin_made = pin && !absent && b == as_index(tensor.pinned);
    for (const int l : usage.read) {
      sum += tensor.conversion(b, as_index(l));
      pin_made |= pin && l == tensor.pinned;
    }
    if (pin && !pin_made) sum += dual_.pin_minimum(t, b);
    for (const ChoicePointTouch& choice_point : tensor.choice_points) {
      if (sum == kInfinity) break;
      const auto column = std::find(choice_points.begin(), choice_points.end(), choice_point.choice_point);
      double least = kInfinity;
      if (column != choice_points.end()) {
        least = alternative_rest(t, choice_point, as_index(choices[column - choice_points.begin()]), b, usage, joined);
      } else {
        for (size_t a = 0; a < choice_point.touches.size(); ++a)
          least = std::min(least, alternative_rest(t, choice_point, a, b, usage, joined));
      }
      sum += least;
    }
    result = std::min(result, sum);
  }
  return result;
}

// The conversions of a tensor whose touchers are all joined.
double Eliminator::closing_cost(size_t t, const Usage& usage) const {
  const ProblemTensor& tensor = problem_.tensors[t];
  if (tensor.written && usage.base < 0) return usage.read.empty() && tensor.can_be_absent ? 0.0 : kInfinity;
  double result = kInfinity;
  for (size_t b = 0; b < tensor.layouts; ++b) {
    if (!dual_.can_lie(t, b) || (usage.base >= 0 && as_index(usage.base) != b)) continue;
    double sum = 0;
    for (const int l : usage.read) sum += tensor.conversion(b, as_index(l));
    const bool pin = tensor.written && tensor.pinned != kNoLayout && !contains(usage.read, tensor.pinned);
    if (pin) sum += tensor.conversion(b, as_index(tensor.pinned));
    result = std::min(result, sum);
  }
  return result;
}

bool Eliminator::all_joined(size_t t, const std::vector<bool>& joined) const {
  const std::vector<Touch>& touches = problem_.tensors[t].touches;
  return std::all_of(touches.begin(), touches.end(), [&](const Touch& touch) { return joined[touch.partition]; });
}

bool Eliminator::choice_point_joined(size_t choice_point, const std::vector<bool>& joined) const {
  for (const auto& alternative : problem_.choice_points[choice_point]) {
    for (const size_t p : alternative) {
      if (!joined[p]) return false;
    }
  }
  return true;
}

// The bound's part of everything that has no column in the table and is not closed.
double Eliminator::untouched(const Table& table) const {
  double sum = 0;
  for (size_t t = 0; t < problem_.tensors.size(); ++t) {
    const std::vector<Touch>& touches = problem_.tensors[t].touches;
    const bool touched =
        std::any_of(touches.begin(), touches.end(), [&](const Touch& touch) { return table.joined[touch.partition]; });
    if (!touched) sum += tensor_minima_[t];
  }
  for (size_t s = 0; s < problem_.choice_points.size(); ++s) {
    if (contains(table.choice_points, s)) continue;
    if (!has_choice(s))
      sum += choice_point_rest(s, 0, table.joined);
    else if (!choice_point_joined(s, table.joined))
      sum += choice_point_minima_[s];
  }
  return sum;
}

double Eliminator::promise(const Table& table, size_t row) const {
  const int* cells = table.row(row);
  const int* choices = cells + table.tensors.size();
  double sum = table.cost[row];
  for (size_t k = 0; k < table.tensors.size(); ++k)
    sum +=
        tensor_rest(table.tensors[k], usages_[table.tensors[k]][cells[k]], table.joined, table.choice_points, choices);
  for (size_t k = 0; k < table.choice_points.size(); ++k)
    sum += choice_point_rest(table.choice_points[k], choices[k], table.joined);
  return sum;
}

// What a way asks of one of its tensors.
Usage usage_of(const ProblemPartition& partition, const ProblemCandidate& candidate, size_t tensor) {
  Usage usage;
  for (size_t slot = 0; slot < partition.tensors.size(); ++slot) {
    if (partition.tensors[slot] != tensor) continue;
    if (slot >= partition.reads)
      usage.base = candidate.layouts[slot];
    else
      usage.read.push_back(candidate.layouts[slot]);
  }
  std::sort(usage.read.begin(), usage.read.end());
  usage.read.erase(std::unique(usage.read.begin(), usage.read.end()), usage.read.end());
  std::erase(usage.read, usage.base);
  return usage;
}

Table Eliminator::leaf(size_t p) {
  const ProblemPartition& partition = problem_.partitions[p];
  Table table;
  table.partition = p;
  table.joined.assign(problem_.partitions.size(), false);
  table.joined[p] = true;
  std::vector<size_t> touched = partition.tensors;
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  for (const size_t t : touched) {
    if (!all_joined(t, table.joined)) table.tensors.push_back(t);
  }
  const bool choice = has_choice(partition.choice_point);
  if (choice && !choice_point_joined(partition.choice_point, table.joined))
    table.choice_points.push_back(partition.choice_point);

  const double rest = untouched(table);
  std::unordered_map<std::vector<int>, size_t, CellsHash> known;
  const auto add = [&](std::vector<int> cells, double cost, int candidate) {
    if (cost == kInfinity) return;
    const auto [entry, fresh] = known.try_emplace(cells, table.rows());
    if (!fresh) {
      if (cost < table.cost[entry->second]) {
        table.cost[entry->second] = cost;
        table.origin[entry->second].first = candidate;
      }
      return;
    }
    table.cells.insert(table.cells.end(), cells.begin(), cells.end());
    table.cost.push_back(cost);
    table.origin.emplace_back(candidate, 0);
    const double promised = promise(table, table.rows() - 1) + rest;
    if (promised <= limits_.cost) return;
    complete_ &= promised == kInfinity;
    table.cells.resize(table.cells.size() - table.width());
    table.cost.pop_back();
    table.origin.pop_back();
    known.erase(entry);
  };
  for (size_t a = 0; a < partition.in.size(); ++a) {
    if (!problem_.open[partition.choice_point][a]) continue;
    if (!partition.in[a]) {
      std::vector<int> cells(table.tensors.size(), Usages::kUnused);
      if (!table.choice_points.empty()) cells.push_back(static_cast<int>(a));
      add(std::move(cells), 0, -1);
      continue;
    }
    for (const ProblemCandidate& candidate : partition.candidates) {
      std::vector<int> cells;
      double cost = candidate.seconds;
      for (const size_t t : touched) {
        Usage usage = usage_of(partition, candidate, t);
        if (contains(table.tensors, t))
          cells.push_back(usages_[t].number(std::move(usage)));
        else
          cost += closing_cost(t, usage);
      }
      if (!table.choice_points.empty()) cells.push_back(static_cast<int>(a));
      add(std::move(cells), cost, candidate.candidate);
    }
  }
  return table;
}

Side Eliminator::side_of(const Table& table, const std::vector<size_t>& shared) const {
  Side side;
  side.table = &table;
  for (const size_t t : shared) {
    const auto column = std::find(table.tensors.begin(), table.tensors.end(), t);
    side.shared.push_back(static_cast<size_t>(column - table.tensors.begin()));
  }
  for (size_t k = 0; k < table.tensors.size(); ++k) {
    if (!contains(side.shared, k)) side.own.push_back(k);
  }
  std::unordered_map<std::vector<int>, size_t, CellsHash> known;
  std::map<std::vector<int>, double> rests;  // of own tensors, by column, usage and choices
  for (size_t r = 0; r < table.rows(); ++r) {
    const int* cells = table.row(r);
    const int* choices = cells + table.tensors.size();
    RowGroup group;
    for (const size_t k : side.shared) group.shared.push_back(cells[k]);
    group.choices.assign(choices, choices + table.choice_points.size());
    std::vector<int> key = group.shared;
    key.insert(key.end(), group.choices.begin(), group.choices.end());
    const auto [entry, fresh] = known.try_emplace(std::move(key), side.groups.size());
    if (fresh) side.groups.push_back(std::move(group));
    double sum = table.cost[r];
    for (const size_t k : side.own) {
      std::vector<int> rest_key = {static_cast<int>(k), cells[k]};
      rest_key.insert(rest_key.end(), choices, choices + table.choice_points.size());
      const auto [rest, unknown] = rests.try_emplace(std::move(rest_key), 0.0);
      if (unknown) {
        const size_t t = table.tensors[k];
        rest->second = tensor_rest(t, usages_[t][cells[k]], table.joined, table.choice_points, choices);
      }
      sum += rest->second;
    }
    side.groups[entry->second].members.emplace_back(sum, static_cast<int>(r));
  }
  for (RowGroup& group : side.groups) std::sort(group.members.begin(), group.members.end());
  std::sort(side.groups.begin(), side.groups.end(),
            [](const RowGroup& a, const RowGroup& b) { return a.members[0] < b.members[0]; });
  return side;
}

std::unique_ptr<Table> Eliminator::join(const Table& left, const Table& right) {
  Joining joining;
  Table& result = *joining.result;
  result.left = &left;
  result.right = &right;
  result.joined = left.joined;
  for (size_t p = 0; p < right.joined.size(); ++p) result.joined[p] = result.joined[p] || right.joined[p];

  for (const size_t t : left.tensors) {
    if (contains(right.tensors, t)) joining.shared.push_back(t);
  }
  joining.left = side_of(left, joining.shared);
  joining.right = side_of(right, joining.shared);
  for (const size_t k : joining.left.own) result.tensors.push_back(left.tensors[k]);
  for (const size_t k : joining.right.own) result.tensors.push_back(right.tensors[k]);
  for (const size_t t : joining.shared) {
    joining.stays_open.push_back(!all_joined(t, result.joined));
    if (joining.stays_open.back()) result.tensors.push_back(t);
  }
  joining.choice_points = left.choice_points;
  for (const size_t s : right.choice_points) {
    const auto at = static_cast<size_t>(std::find(joining.choice_points.begin(), joining.choice_points.end(), s) -
                                        joining.choice_points.begin());
    joining.right_choice_points.push_back(at);
    if (at == joining.choice_points.size()) joining.choice_points.push_back(s);
  }
  for (size_t k = 0; k < joining.choice_points.size(); ++k) {
    if (choice_point_joined(joining.choice_points[k], result.joined)) continue;
    joining.open_choice_points.push_back(k);
    result.choice_points.push_back(joining.choice_points[k]);
  }
  joining.rest = untouched(result);
  joining.shared_rests.resize(joining.shared.size());
  joining.joint.resize(joining.shared.size());
  joining.open_choices.resize(joining.open_choice_points.size());
  for (const RowGroup& x : joining.left.groups) {
    for (const RowGroup& y : joining.right.groups) {
      join_groups(joining, x, y);
      if (rows_ > limits_.rows) return std::move(joining.result);
    }
  }
  return std::move(joining.result);
}

// Whether the groups agree on the choice points that both sides have; sets the alternatives of the choice points that
// stay open.
bool agree_on_choice_points(Joining& joining, const RowGroup& x, const RowGroup& y) {
  std::vector<int> choices = x.choices;
  choices.resize(joining.choice_points.size());
  for (size_t k = 0; k < y.choices.size(); ++k) {
    const size_t at = joining.right_choice_points[k];
    if (at < x.choices.size() && choices[at] != y.choices[k]) return false;
    choices[at] = y.choices[k];
  }
  for (size_t k = 0; k < joining.open_choice_points.size(); ++k)
    joining.open_choices[k] = choices[joining.open_choice_points[k]];
  return true;
}

void Eliminator::join_groups(Joining& joining, const RowGroup& x, const RowGroup& y) {
  if (!agree_on_choice_points(joining, x, y)) return;
  const Table& result = *joining.result;
  double closing = 0;             // paid by the joined rows
  double waiting = joining.rest;  // still to be paid
  const double least = x.members[0].first + y.members[0].first;
  size_t mix = 0;  // of the alternatives
  for (size_t k = 0; k < result.choice_points.size(); ++k) {
    waiting += choice_point_rest(result.choice_points[k], joining.open_choices[k], result.joined);
    mix = mix * problem_.choice_points[result.choice_points[k]].size() + as_index(joining.open_choices[k]);
  }
  for (size_t k = 0; k < joining.shared.size() && least + closing + waiting < kInfinity; ++k) {
    const size_t t = joining.shared[k];
    const int usage = usages_[t].join(x.shared[k], y.shared[k]);
    joining.joint[k] = usage;
    if (usage == kClash) {
      closing = kInfinity;
    } else if (!joining.stays_open[k]) {
      closing += closing_cost(t, usages_[t][usage]);
    } else {
      const auto [entry, unknown] = joining.shared_rests[k].try_emplace(mix << 32 | as_index(usage), 0.0);
      if (unknown)
        entry->second =
            tensor_rest(t, usages_[t][usage], result.joined, result.choice_points, joining.open_choices.data());
      waiting += entry->second;
    }
  }
  if (least + closing + waiting == kInfinity) return;
  for (const auto& [x_sum, x_row] : x.members) {
    for (const auto& [y_sum, y_row] : y.members) {
      if (x_sum + y_sum + closing + waiting > limits_.cost) {
        complete_ &= x_sum + y_sum == kInfinity;
        break;
      }
      add_row(joining, x_row, y_row, closing);
      if (rows_ > limits_.rows) return;
    }
  }
}

void Eliminator::add_row(Joining& joining, int x, int y, double closing) {
  const Table& left = *joining.left.table;
  const Table& right = *joining.right.table;
  Table& result = *joining.result;
  std::vector<int>& cells = joining.cells;
  cells.clear();
  for (const size_t k : joining.left.own) cells.push_back(left.row(as_index(x))[k]);
  for (const size_t k : joining.right.own) cells.push_back(right.row(as_index(y))[k]);
  for (size_t k = 0; k < joining.shared.size(); ++k) {
    if (joining.stays_open[k]) cells.push_back(joining.joint[k]);
  }
  cells.insert(cells.end(), joining.open_choices.begin(), joining.open_choices.end());
  const double cost = left.cost[as_index(x)] + right.cost[as_index(y)] + closing;
  const auto [entry, fresh] = joining.known.try_emplace(cells, result.rows());
  if (fresh) {
    result.cells.insert(result.cells.end(), cells.begin(), cells.end());
    result.cost.push_back(cost);
    result.origin.emplace_back(x, y);
    ++rows_;
  } else if (cost < result.cost[entry->second]) {
    result.cost[entry->second] = cost;
    result.origin[entry->second] = {x, y};
  }
}

void Eliminator::keep_most_promising(Table& table) {
  if (limits_.beam == 0 || table.rows() <= limits_.beam) return;
  complete_ = false;
  std::vector<std::pair<double, size_t>> order;
  for (size_t r = 0; r < table.rows(); ++r) order.emplace_back(promise(table, r), r);
  std::sort(order.begin(), order.end());
  order.resize(limits_.beam);
  Table kept = table;
  kept.cells.clear();
  kept.cost.clear();
  kept.origin.clear();
  for (const auto& [value, r] : order) {
    kept.cells.insert(kept.cells.end(), table.row(r), table.row(r) + table.width());
    kept.cost.push_back(table.cost[r]);
    kept.origin.push_back(table.origin[r]);
  }
  table = std::move(kept);
}

// The two tables to join next: of those that have a column in common, the two with the fewest pairs of rows, counting
// columns that joining closes as so many rows less.
std::pair<size_t, size_t> Eliminator::next_pair() const {
  double best = kInfinity;
  std::pair<size_t, size_t> chosen = {0, 1};
  constexpr double kClosing = 1;  // as powers of two
  constexpr double kCommon = 2;
  for (size_t i = 0; i < tables_.size(); ++i) {
    for (size_t j = i + 1; j < tables_.size(); ++j) {
      size_t common = 0;
      size_t closed = 0;
      for (const size_t t : tables_[i]->tensors) {
        if (!contains(tables_[j]->tensors, t)) continue;
        ++common;
        const auto& touches = problem_.tensors[t].touches;
        closed += std::all_of(touches.begin(), touches.end(), [&](const Touch& touch) {
          return tables_[i]->joined[touch.partition] || tables_[j]->joined[touch.partition];
        });
      }
      for (const size_t s : tables_[i]->choice_points) common += contains(tables_[j]->choice_points, s) ? 1 : 0;
      if (common == 0) continue;
      const double pairs = static_cast<double>(tables_[i]->rows()) * static_cast<double>(tables_[j]->rows());
      const double weight =
          std::log2(pairs) - kClosing * static_cast<double>(closed) - kCommon * static_cast<double>(common);
      if (weight >= best) continue;
      best = weight;
      chosen = {i, j};
    }
  }
  return chosen;
}

void Eliminator::trace(const Table& table, size_t row, Elimination& result) const {
  std::vector<std::pair<const Table*, size_t>> open = {{&table, row}};
  while (!open.empty()) {
    const auto [current, r] = open.back();
    open.pop_back();
    const auto [x, y] = current->origin[r];
    if (current->left == nullptr) {
      result.candidates[current->partition] = x;
      continue;
    }
    open.emplace_back(current->left, as_index(x));
    open.emplace_back(current->right, as_index(y));
  }
}

void Eliminator::choose_alternatives() {
  for (size_t s = 0; s < problem_.choice_points.size(); ++s)
    result_.alternatives[s] = alternative_of(s, result_.candidates);
}

// The alternative whose partitions are just those of the choice point that have a way.
int Eliminator::alternative_of(size_t choice_point, const std::vector<int>& candidates) const {
  for (size_t a = 0; a < problem_.choice_points[choice_point].size(); ++a) {
    bool same = problem_.open[choice_point][a];
    for (const auto& partitions : problem_.choice_points[choice_point]) {
      for (const size_t p : partitions) same = same && (candidates[p] >= 0) == problem_.partitions[p].in[a];
    }
    if (same) return static_cast<int>(a);
  }
  return -1;
}

bool Eliminator::make_leaves() {
  for (size_t p = 0; p < problem_.partitions.size(); ++p) {
    kept_.push_back(std::make_unique<Table>(leaf(p)));
    tables_.push_back(kept_.back().get());
    if (tables_.back()->rows() > 0) continue;
    result_.stuck = problem_.partitions[p].tensors;
    return false;
  }
  return true;
}

// Puts the join of two tables in their place.
bool Eliminator::join_pair(size_t i, size_t j) {
  kept_.push_back(join(*tables_[i], *tables_[j]));
  Table& joined = *kept_.back();
  if (rows_ > limits_.rows) {
    result_.end = Elimination::End::blown;
    return false;
  }
  if (joined.rows() == 0) {
    for (const size_t t : tables_[i]->tensors) {
      if (contains(tables_[j]->tensors, t)) result_.stuck.push_back(t);
    }
    return false;
  }
  keep_most_promising(joined);
  tables_.erase(tables_.begin() + static_cast<std::ptrdiff_t>(std::max(i, j)));
  tables_.erase(tables_.begin() + static_cast<std::ptrdiff_t>(std::min(i, j)));
  tables_.push_back(&joined);
  return true;
}

bool Eliminator::join_all() {
  while (tables_.size() > 1) {
    const auto [i, j] = next_pair();
    if (!join_pair(i, j)) return false;
  }
  return true;
}

// One table a choice point, in the order of the choice points that have partitions.
bool Eliminator::join_choice_points() {
  const std::vector<const Table*> leaves = std::move(tables_);
  std::vector<const Table*> done;
  for (size_t s = 0; s < problem_.choice_points.size(); ++s) {
    tables_.clear();
    for (const Table* table : leaves) {
      if (problem_.partitions[table->partition].choice_point == s) tables_.push_back(table);
    }
    if (!join_all()) return false;
    done.insert(done.end(), tables_.begin(), tables_.end());
  }
  tables_ = std::move(done);
  return true;
}

// The choice points' tables as a problem: rows that ask alike (the same tensors, as many layouts of each) are the ways
// of one partition, and the parts of a choice point are its alternatives.
Problem Eliminator::condensed(std::vector<std::pair<const Table*, std::vector<size_t>>>& rows_of) const {
  Problem result;
  result.tensors = problem_.tensors;
  for (ProblemTensor& tensor : result.tensors) {
    tensor.touches.clear();
    tensor.choice_points.clear();
  }
  for (const Table* table : tables_) {
    std::map<std::vector<size_t>, size_t> kinds;  // tensors as slots hold them, then the number of reads → partition
    const size_t choice_point = result.choice_points.size();
    result.choice_points.emplace_back();
    for (size_t r = 0; r < table->rows(); ++r) {
      ProblemPartition partition;
      ProblemCandidate candidate;
      candidate.seconds = table->cost[r];
      std::vector<std::pair<size_t, int>> writes;
      for (size_t k = 0; k < table->tensors.size(); ++k) {
        const size_t t = table->tensors[k];
        const Usage& usage = usages_[t][table->row(r)[k]];
        for (const int l : usage.read) {
          partition.tensors.push_back(t);
          candidate.layouts.push_back(l);
        }
        if (usage.base >= 0) writes.emplace_back(t, usage.base);
      }
      partition.reads = partition.tensors.size();
      for (const auto& [t, l] : writes) {
        partition.tensors.push_back(t);
        candidate.layouts.push_back(l);
      }
      std::vector<size_t> kind = partition.tensors;
      kind.push_back(partition.reads);
      const auto [entry, fresh] = kinds.try_emplace(std::move(kind), result.partitions.size());
      if (fresh) {
        partition.choice_point = choice_point;
        result.choice_points.back().push_back({result.partitions.size()});
        result.partitions.push_back(std::move(partition));
        rows_of.emplace_back(table, std::vector<size_t>());
      }
      auto& [own_table, rows] = rows_of[entry->second];
      candidate.candidate = static_cast<int>(rows.size());
      rows.push_back(r);
      result.partitions[entry->second].candidates.push_back(std::move(candidate));
    }
    const size_t alternatives = result.choice_points.back().size();
    result.open.emplace_back(alternatives, true);
    for (size_t a = 0; a < alternatives; ++a) {
      ProblemPartition& partition = result.partitions[result.choice_points.back()[a][0]];
      partition.in.assign(alternatives, false);
      partition.in[a] = true;
    }
  }
  add_touches(result);
  return result;
}

// Joins the pairs that are cheapest to join, until few enough tables are left or one has grown large.
bool Eliminator::join_some() {
  const size_t enough = tables_.size() <= kFew ? 1 : tables_.size() * 2 / 3;
  while (tables_.size() > enough) {
    const auto [i, j] = next_pair();
    if (!join_pair(i, j)) return false;
    if (tables_.size() > kFew && tables_.back()->rows() > kLarge) break;
  }
  return true;
}

Elimination Eliminator::run(bool first) {
  if (!make_leaves() || !join_choice_points() || (!first && !join_some())) {
    result_.complete = complete_;
    return std::move(result_);
  }
  if (tables_.size() > 1) {
    go_on_condensed();
  } else {
    result_.end = Elimination::End::solved;
    result_.complete = complete_;
    if (!tables_.empty()) trace(*tables_[0], 0, result_);
  }
  choose_alternatives();
  return std::move(result_);
}

void Eliminator::go_on_condensed() {
  std::vector<std::pair<const Table*, std::vector<size_t>>> rows_of;
  const Problem smaller = condensed(rows_of);
  DualBound dual(smaller);
  dual.improve();
  const double bound = dual.bound();
  if (bound > limits_.cost || bound == kInfinity) {
    result_.complete = complete_ && bound == kInfinity;
    if (bound == kInfinity) result_.stuck = dual.stuck();
    return;
  }
  EliminationLimits rest = limits_;
  rest.rows = limits_.rows - std::min(rows_, limits_.rows);
  const Elimination found = Eliminator(smaller, dual, rest).run(false);
  result_.end = found.end;
  result_.complete = complete_ && found.complete;
  result_.stuck = found.stuck;
  if (found.end != Elimination::End::solved) return;
  for (size_t p = 0; p < smaller.partitions.size(); ++p) {
    if (found.candidates[p] >= 0) trace(*rows_of[p].first, rows_of[p].second[as_index(found.candidates[p])], result_);
  }
}

}  // namespace

Elimination eliminate(const Problem& problem, const DualBound& dual, const EliminationLimits& limits) {
  return Eliminator(problem, dual, limits).run(true);
}

}  // namespace millrace
