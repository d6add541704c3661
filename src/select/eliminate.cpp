#include "select/eliminate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <unordered_map>

#include "base/id.h"
#include "select/eliminator.h"

namespace millrace {
namespace {

constexpr size_t kFew = 5;       // this few tables are joined into one without another bound
constexpr size_t kLarge = 2000;  // with this many rows, another bound is worth its time

}  // namespace

// Picks the two tables to join next: among tables with a common column, the pair with the fewest row pairs. A column
// that the join closes counts as fewer rows.
std::pair<size_t, size_t> Eliminator::next_pair() const {
  double best = kInfinity;
  std::pair<size_t, size_t> chosen = {0, 1};
  constexpr double kClosing = 1;  // as a power of two
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

void Eliminator::trace(const UsageTable& table, size_t row, Elimination& result) const {
  std::vector<std::pair<const UsageTable*, size_t>> open = {{&table, row}};
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

// The alternative that consists of exactly those partitions of the choice point that have a candidate.
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
    kept_.push_back(std::make_unique<UsageTable>(leaf(p)));
    tables_.push_back(kept_.back().get());
    if (tables_.back()->rows() > 0) continue;
    result_.stuck = problem_.partitions[p].tensors;
    return false;
  }
  return true;
}

// Replaces two tables by their join.
bool Eliminator::join_pair(size_t i, size_t j) {
  kept_.push_back(join(*tables_[i], *tables_[j]));
  UsageTable& joined = *kept_.back();
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

// One table per choice point, in the order of the choice points that have partitions.
bool Eliminator::join_choice_points() {
  const std::vector<const UsageTable*> leaves = std::move(tables_);
  std::vector<const UsageTable*> done;
  for (size_t s = 0; s < problem_.choice_points.size(); ++s) {
    tables_.clear();
    for (const UsageTable* table : leaves) {
      if (problem_.partitions[table->partition].choice_point == s) tables_.push_back(table);
    }
    if (!join_all()) return false;
    done.insert(done.end(), tables_.begin(), tables_.end());
  }
  tables_ = std::move(done);
  return true;
}

// The choice points' tables as a problem. Rows with equal needs (the same tensors, equally many layouts of each) are
// the candidates of one partition, and the partitions of a choice point are its alternatives.
Problem Eliminator::condensed(std::vector<std::pair<const UsageTable*, std::vector<size_t>>>& rows_of) const {
  Problem result;
  result.tensors = problem_.tensors;
  for (ProblemTensor& tensor : result.tensors) {
    tensor.touches.clear();
    tensor.choice_points.clear();
  }
  for (const UsageTable* table : tables_) {
    std::map<std::vector<size_t>, size_t> kinds;  // tensors by slot, then the number of reads → partition
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

// Joins the cheapest pairs until few tables are left or one has grown large.
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
  std::vector<std::pair<const UsageTable*, std::vector<size_t>>> rows_of;
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

Elimination eliminate(const Problem& problem, const DualBound& dual, const EliminationLimits& limits) {
  return Eliminator(problem, dual, limits).run(true);
}

}  // namespace millrace
