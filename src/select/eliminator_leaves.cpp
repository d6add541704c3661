// The tables of single partitions, and the alternatives for which they have rows.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "base/id.h"
#include "select/eliminator.h"

namespace millrace {
namespace {

constexpr size_t kRowsAnAlternative = 4;  // of a beam: it has room for this many of each alternative
constexpr double kUnknown = -kInfinity;

}  // namespace

// What a candidate needs from one of its tensors.
static Usage usage_of(const ProblemPartition& partition, const ProblemCandidate& candidate, size_t tensor) {
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

// Whether some alternative has several partitions. Then most partitions are in several alternatives, and a table has
// rows for each of them.
static bool is_multiplied(const std::vector<std::vector<size_t>>& alternatives) {
  return std::any_of(alternatives.begin(), alternatives.end(), [](const auto& list) { return list.size() > 1; });
}

// The least that a selection with each alternative of a choice point costs.
std::vector<double> Eliminator::alternative_bounds(size_t s, const std::vector<size_t>& tensors) const {
  std::vector<double> bounds;
  for (size_t a = 0; a < open_[s].size(); ++a) {
    double sum = minima_ - choice_point_minima_[s] + choice_point_rest(s, a, {kNoTable, kNoTable});
    const int choice = static_cast<int>(a);
    for (size_t k = 0; k < tensors.size() && sum < kInfinity; ++k)
      sum += tensor_rest(tensors[k], {}, {kNoTable, kNoTable}, {s}, &choice) - tensor_minima_[tensors[k]];
    bounds.push_back(sum);
  }
  return bounds;
}

// Closes the alternatives of a choice point that cost too much or that the beam is too narrow for. If all cost too
// much, they stay, so that the search finds where they are stuck.
void Eliminator::close_unpromising(size_t s, const std::vector<size_t>& tensors) {
  const std::vector<double> bounds = alternative_bounds(s, tensors);
  std::vector<size_t> order(bounds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bounds[a] < bounds[b]; });
  if (bounds[order[0]] > limits_.cost || bounds[order[0]] == kInfinity) return;
  const size_t most = std::max(limits_.beam / kRowsAnAlternative, size_t{1});
  for (size_t k = 1; k < order.size(); ++k) {
    const double bound = bounds[order[k]];
    if (k < most && bound <= limits_.cost && bound < kInfinity) continue;
    open_[s][order[k]] = false;
    result_.dropped_by_beam |= bound <= limits_.cost && bound < kInfinity;
  }
  minima_ -= choice_point_minima_[s];
  choice_point_minima_[s] = choice_point_minimum(s);
  minima_ += choice_point_minima_[s];
}

void Eliminator::close_unpromising() {
  if (!is_bounded()) return;
  std::map<size_t, std::vector<size_t>> tensors;  // by multiplied choice point
  for (size_t t = 0; t < problem_.tensors.size(); ++t) {
    for (const ChoicePointTouch& touch : problem_.tensors[t].choice_points) {
      const size_t s = touch.choice_point;
      if (has_choice(s) && is_multiplied(problem_.choice_points[s])) tensors[s].push_back(t);
    }
  }
  for (const auto& [s, touched] : tensors) close_unpromising(s, touched);
}

// The columns of a partition's table.
UsageTable Eliminator::empty_leaf(size_t p, const std::vector<size_t>& touched) const {
  const ProblemPartition& partition = problem_.partitions[p];
  UsageTable table;
  table.id = table.first = p;
  for (const size_t t : touched) {
    table.minima += tensor_minima_[t];
    const auto touches = std::count(partition.tensors.begin(), partition.tensors.end(), t);
    if (static_cast<size_t>(touches) == problem_.tensors[t].touches.size()) continue;
    table.tensors.push_back(t);
    table.touches.push_back(static_cast<size_t>(touches));
  }
  const size_t s = partition.choice_point;
  table.minima += has_choice(s) ? choice_point_minima_[s] : dual_.partition_minimum(p);
  return table;
}

// A row for each useful candidate, without the choice point.
void Eliminator::add_candidate_rows(UsageTable& table, const std::vector<size_t>& touched) {
  const ProblemPartition& partition = problem_.partitions[table.id];
  std::unordered_map<std::vector<int>, size_t, CellsHash> known;
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
    if (cost == kInfinity) continue;
    const auto [entry, fresh] = known.try_emplace(cells, table.rows());
    if (fresh) {
      table.add(cells, cost, {candidate.candidate, 0});
    } else if (cost < table.cost[entry->second]) {
      table.cost[entry->second] = cost;
      table.origin[entry->second].first = candidate.candidate;
    }
  }
  drop_dominated(table);
}

// Whether a leaf's rows name the alternative: other partitions of the choice point must agree.
bool Eliminator::has_choice_column(size_t p) const {
  const size_t s = problem_.partitions[p].choice_point;
  return has_choice(s) && choice_point_sizes_[s] > 1;
}

// The candidates' rows that a selection with the alternative may have within the cost limit.
std::vector<size_t> Eliminator::affordable_rows(const UsageTable& table, size_t alternative) const {
  const Joined joined{table.id, table.id};
  const size_t s = problem_.partitions[table.id].choice_point;
  const bool column = has_choice_column(table.id);
  const std::vector<size_t> choice_points(column ? 1 : 0, s);
  const int choice = static_cast<int>(alternative);
  const double rest = minima_ - table.minima + (column ? choice_point_rest(s, alternative, joined) : 0.0);
  std::vector<std::vector<double>> rests(table.tensors.size());  // by column and usage
  std::vector<size_t> rows;
  for (size_t r = 0; r < table.rows(); ++r) {
    double promised = rest + table.cost[r];
    for (size_t k = 0; k < table.tensors.size() && is_bounded(); ++k) {
      const size_t usage = as_index(table.row(r)[k]);
      if (usage >= rests[k].size()) rests[k].resize(usage + 1, kUnknown);
      const size_t t = table.tensors[k];
      if (rests[k][usage] == kUnknown)
        rests[k][usage] = tensor_rest(t, usages_[t][table.row(r)[k]], joined, choice_points, &choice);
      promised += rests[k][usage];
    }
    if (promised <= limits_.cost) rows.push_back(r);
  }
  return rows;
}

void Eliminator::add_alternative(UsageTable& table, const UsageTable& rows, size_t alternative) const {
  std::vector<int> cells(table.width(), static_cast<int>(alternative));
  for (const size_t r : affordable_rows(rows, alternative)) {
    std::copy_n(rows.row(r), rows.width(), cells.begin());
    table.add(cells, rows.cost[r], rows.origin[r]);
  }
}

// The rows of a partition for every alternative, or for just one that it is in and one that it is not in.
UsageTable Eliminator::leaf(size_t p, bool every_alternative) {
  const ProblemPartition& partition = problem_.partitions[p];
  std::vector<size_t> touched = partition.tensors;
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  UsageTable table = empty_leaf(p, touched);
  UsageTable candidates = table;
  add_candidate_rows(candidates, touched);
  UsageTable absent = table;
  absent.add(std::vector<int>(absent.width(), Usages::kUnused), 0, {-1, 0});
  const size_t s = partition.choice_point;
  if (has_choice_column(p)) {
    table.choice_points.push_back(s);
    table.partitions.push_back(1);
  }
  std::array<bool, 2> added = {false, false};
  for (size_t a = 0; a < open_[s].size(); ++a) {
    bool& known = added[partition.in[a] ? 1 : 0];
    if (!open_[s][a] || (known && !(every_alternative && has_choice_column(p)))) continue;
    known = true;
    add_alternative(table, partition.in[a] ? candidates : absent, a);
  }
  if (has_choice(s) && !has_choice_column(p)) drop_dominated(table);
  return table;
}

}  // namespace millrace
