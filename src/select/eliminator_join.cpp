#include <algorithm>
#include <map>

#include "base/id.h"
#include "base/position.h"
#include "select/eliminator.h"

namespace millrace {

// Numbers the cells of a table's rows in some columns.
static void number_cells(JoinSide& side) {
  std::unordered_map<std::vector<int>, size_t, CellsHash> known;
  std::vector<int> cells(side.own.size());
  for (size_t r = 0; r < side.table->rows(); ++r) {
    for (size_t k = 0; k < side.own.size(); ++k) cells[k] = side.table->row(r)[side.own[k]];
    side.own_cells.push_back(known.try_emplace(cells, known.size()).first->second);
  }
  side.own_count = known.size();
}

JoinSide Eliminator::side_of(const UsageTable& table, const std::vector<size_t>& shared) const {
  JoinSide side;
  side.table = &table;
  for (const size_t t : shared) {
    const auto column = std::find(table.tensors.begin(), table.tensors.end(), t);
    side.shared.push_back(static_cast<size_t>(column - table.tensors.begin()));
  }
  for (size_t k = 0; k < table.tensors.size(); ++k) {
    if (!contains(side.shared, k)) side.own.push_back(k);
  }
  number_cells(side);
  std::unordered_map<std::vector<int>, size_t, CellsHash> known;
  std::map<std::vector<int>, double> rests;  // of the side's own tensors, by column, usage and choices
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
    for (size_t c = 0; c < side.own.size() && is_bounded(); ++c) {
      const size_t k = side.own[c];
      std::vector<int> rest_key = {static_cast<int>(k), cells[k]};
      rest_key.insert(rest_key.end(), choices, choices + table.choice_points.size());
      const auto [rest, unknown] = rests.try_emplace(std::move(rest_key), 0.0);
      if (unknown) {
        const size_t t = table.tensors[k];
        rest->second = tensor_rest(t, usages_[t][cells[k]], {table.id, table.id}, table.choice_points, choices);
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

// The columns of the result: what is open on either side, and not closed by the join.
void Eliminator::set_columns(Joining& joining) const {
  UsageTable& result = *joining.result;
  for (const JoinSide* side : {&joining.left, &joining.right}) {
    for (const size_t k : side->own) {
      result.tensors.push_back(side->table->tensors[k]);
      result.touches.push_back(side->table->touches[k]);
    }
  }
  for (size_t k = 0; k < joining.shared.size(); ++k) {
    const size_t t = joining.shared[k];
    const size_t touches =
        joining.left.table->touches[joining.left.shared[k]] + joining.right.table->touches[joining.right.shared[k]];
    result.minima -= tensor_minima_[t];
    joining.stays_open.push_back(touches < problem_.tensors[t].touches.size());
    if (!joining.stays_open.back()) continue;
    result.tensors.push_back(t);
    result.touches.push_back(touches);
  }
  joining.choice_points = joining.left.table->choice_points;
  std::vector<size_t> partitions = joining.left.table->partitions;
  for (size_t k = 0; k < joining.right.table->choice_points.size(); ++k) {
    const size_t s = joining.right.table->choice_points[k];
    const auto at = position_in(joining.choice_points, s);
    joining.right_choice_points.push_back(at);
    if (at == joining.choice_points.size()) {
      joining.choice_points.push_back(s);
      partitions.push_back(0);
    } else {
      result.minima -= choice_point_minima_[s];
    }
    partitions[at] += joining.right.table->partitions[k];
  }
  for (size_t k = 0; k < joining.choice_points.size(); ++k) {
    if (partitions[k] == choice_point_sizes_[joining.choice_points[k]]) continue;
    joining.open_choice_points.push_back(k);
    result.choice_points.push_back(joining.choice_points[k]);
    result.partitions.push_back(partitions[k]);
  }
}

// The right side's groups by the alternatives of the choice points that both sides have.
using GroupsByChoices = std::unordered_map<std::vector<int>, std::vector<const RowGroup*>, CellsHash>;

static GroupsByChoices groups_by_choices(const Joining& joining) {
  GroupsByChoices result;
  for (const RowGroup& y : joining.right.groups) {
    std::vector<int> common;
    for (size_t k = 0; k < y.choices.size(); ++k) {
      if (joining.right_choice_points[k] < joining.left.table->choice_points.size()) common.push_back(y.choices[k]);
    }
    result[std::move(common)].push_back(&y);
  }
  return result;
}

// The same of one of the left side's groups.
static std::vector<int> common_choices(const Joining& joining, const RowGroup& x) {
  std::vector<int> common;
  for (const size_t at : joining.right_choice_points) {
    if (at < x.choices.size()) common.push_back(x.choices[at]);
  }
  return common;
}

std::unique_ptr<UsageTable> Eliminator::join(const UsageTable& left, const UsageTable& right) {
  Joining joining;
  UsageTable& result = *joining.result;
  result.left = &left;
  result.right = &right;
  result.first = std::min(left.first, right.first);
  result.minima = left.minima + right.minima;
  joining.joined = {left.id, right.id};
  for (const size_t t : left.tensors) {
    if (contains(right.tensors, t)) joining.shared.push_back(t);
  }
  joining.left = side_of(left, joining.shared);
  joining.right = side_of(right, joining.shared);
  set_columns(joining);
  joining.rest = minima_ - result.minima;
  joining.most = limits_.cost;
  joining.shared_rests.resize(joining.shared.size());
  joining.joint.resize(joining.shared.size());
  joining.open_choices.resize(joining.open_choice_points.size());
  joining.known.emplace(joining.left.own_count, joining.right.own_count);
  const GroupsByChoices partners = groups_by_choices(joining);
  for (const RowGroup& x : joining.left.groups) {
    const auto found = partners.find(common_choices(joining, x));
    if (found == partners.end()) continue;
    for (const RowGroup* y : found->second) {
      join_groups(joining, x, *y);
      if (too_late_now_and_then()) return std::move(joining.result);
    }
  }
  if (result.rows() > limits_.beam) keep_most_promising(joining);
  return std::move(joining.result);
}

// The alternatives of the choice points that stay open.
static void set_open_choices(Joining& joining, const RowGroup& x, const RowGroup& y) {
  std::vector<int> choices = x.choices;
  choices.resize(joining.choice_points.size());
  for (size_t k = 0; k < y.choices.size(); ++k) choices[joining.right_choice_points[k]] = y.choices[k];
  for (size_t k = 0; k < joining.open_choice_points.size(); ++k)
    joining.open_choices[k] = choices[joining.open_choice_points[k]];
}

void Eliminator::join_groups(Joining& joining, const RowGroup& x, const RowGroup& y) {
  set_open_choices(joining, x, y);
  const UsageTable& result = *joining.result;
  double closing = 0;             // paid by the joined rows
  double waiting = joining.rest;  // still to be paid
  const double least = x.members[0].first + y.members[0].first;
  size_t mix = 0;  // a hash of the alternatives
  for (size_t k = 0; k < result.choice_points.size(); ++k) {
    waiting += choice_point_rest(result.choice_points[k], as_index(joining.open_choices[k]), joining.joined);
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
            tensor_rest(t, usages_[t][usage], joining.joined, result.choice_points, joining.open_choices.data());
      waiting += entry->second;
    }
  }
  if (least + closing + waiting == kInfinity) return;
  set_kind(joining);
  for (const auto& [x_sum, x_row] : x.members) {
    for (const auto& [y_sum, y_row] : y.members) {
      const double promised = x_sum + y_sum + closing + waiting;
      if (promised > joining.most) {
        result_.dropped_by_beam |= promised <= limits_.cost;
        break;
      }
      add_row(joining, x_row, y_row, closing, promised);
    }
  }
}

// Rows of the same kind differ only in what one side has alone.
void Eliminator::set_kind(Joining& joining) {
  std::vector<int> cells = joining.open_choices;
  for (size_t k = 0; k < joining.shared.size(); ++k) {
    if (joining.stays_open[k]) cells.push_back(joining.joint[k]);
  }
  joining.kind = joining.kinds.try_emplace(std::move(cells), joining.kinds.size()).first->second;
}

void Eliminator::add_row(Joining& joining, int x, int y, double closing, double promised) {
  const UsageTable& left = *joining.left.table;
  const UsageTable& right = *joining.right.table;
  UsageTable& result = *joining.result;
  const double cost = left.cost[as_index(x)] + right.cost[as_index(y)] + closing;
  const RowKey key{joining.kind, joining.left.own_cells[as_index(x)], joining.right.own_cells[as_index(y)]};
  int64_t& known = (*joining.known)[key];
  if (known != RowIndex::kNone) {
    const auto row = static_cast<size_t>(known);
    if (cost >= result.cost[row]) return;
    result.cost[row] = cost;
    result.origin[row] = {x, y};
    joining.promises[row] = promised;
    return;
  }
  known = static_cast<int64_t>(result.rows());
  joining.keys.push_back(key);
  for (const size_t k : joining.left.own) result.cells.push_back(left.row(as_index(x))[k]);
  for (const size_t k : joining.right.own) result.cells.push_back(right.row(as_index(y))[k]);
  for (size_t k = 0; k < joining.shared.size(); ++k) {
    if (joining.stays_open[k]) result.cells.push_back(joining.joint[k]);
  }
  result.cells.insert(result.cells.end(), joining.open_choices.begin(), joining.open_choices.end());
  result.cost.push_back(cost);
  result.origin.emplace_back(x, y);
  joining.promises.push_back(promised);
  ++rows_;
  ++result_.rows;
  if (result.rows() / 2 > limits_.beam) keep_most_promising(joining);
}

}  // namespace millrace
