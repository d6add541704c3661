#include "select/eliminate.h"

#include <tuple>

#include "base/clock.h"
#include "base/id.h"
#include "select/eliminator.h"

namespace millrace {
namespace {

constexpr size_t kFew = 5;        // this few tables are joined into one without another bound
constexpr size_t kLarge = 2000;   // with this many rows, another bound is worth its time
constexpr double kCheap = 2'500;  // pairs of rows that are joined before there is a bound
constexpr size_t kStepsAClock = 64;

}  // namespace

Eliminator::Eliminator(const Problem& problem, const DualBound& dual, const EliminationLimits& limits)
    : problem_(problem),
      dual_(dual),
      limits_(limits),
      open_(problem.open),
      usages_(problem.tensors.size()),
      choice_point_sizes_(problem.choice_points.size(), 0),
      joined_into_(problem.partitions.size()),
      tensor_holders_(problem.tensors.size()),
      choice_point_holders_(problem.choice_points.size()) {
  for (size_t p = 0; p < problem.partitions.size(); ++p) joined_into_[p] = p;
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    tensor_minima_.push_back(problem.tensors[t].touches.empty() ? 0.0 : dual.tensor_minimum(t));
    minima_ += tensor_minima_.back();
  }
  for (size_t s = 0; s < problem.choice_points.size(); ++s) {
    choice_point_minima_.push_back(choice_point_minimum(s));
    minima_ += choice_point_minima_.back();
  }
  for (const ProblemPartition& partition : problem.partitions) ++choice_point_sizes_[partition.choice_point];
  result_.lower_bound = minima_;
  result_.candidates.assign(problem.partitions.size(), -1);
  result_.alternatives.assign(problem.choice_points.size(), -1);
}

bool Eliminator::too_late() {
  const bool late = limits_.deadline < kInfinity && now() > limits_.deadline;
  if (late || rows_ > limits_.rows) result_.end = Elimination::End::cut;
  return result_.end == Elimination::End::cut;
}

bool Eliminator::too_late_now_and_then() {
  if (rows_ <= limits_.rows && ++steps_ % kStepsAClock != 0) return result_.end == Elimination::End::cut;
  return too_late();
}

bool Eliminator::make_leaves(double most) {
  std::vector<bool> every_alternative;
  for (size_t s = 0; s < open_.size(); ++s) every_alternative.push_back(combinations(s) <= most);
  for (size_t p = 0; p < problem_.partitions.size(); ++p) {
    auto made = std::make_unique<UsageTable>(leaf(p, every_alternative[problem_.partitions[p].choice_point]));
    rows_ += made->rows();
    result_.rows += made->rows();
    if (too_late()) return false;
    if (made->rows() == 0) {
      result_.stuck = problem_.partitions[p].tensors;
      return false;
    }
    add_table(std::move(made));
  }
  return true;
}

// The rows of two tables together; null if that ends the search.
std::unique_ptr<UsageTable> Eliminator::useful_join(const UsageTable& left, const UsageTable& right) {
  std::unique_ptr<UsageTable> joined = join(left, right);
  if (result_.end == Elimination::End::cut) return nullptr;
  if (joined->rows() == 0) {
    for (const size_t t : left.tensors) {
      if (contains(right.tensors, t)) result_.stuck.push_back(t);
    }
    return nullptr;
  }
  drop_dominated(*joined);
  return joined;
}

bool Eliminator::join_pair(UsageTable& left, UsageTable& right) {
  std::unique_ptr<UsageTable> joined = useful_join(left, right);
  if (joined == nullptr) return false;
  replace(left, right, std::move(joined));
  return true;
}

void Eliminator::replace(UsageTable& left, UsageTable& right, std::unique_ptr<UsageTable> joined) {
  joined->id = kept_.size();
  joined_into_.push_back(joined->id);
  joined_into_[left.id] = joined_into_[right.id] = joined->id;
  remove_table(left);
  remove_table(right);
  add_table(std::move(joined));
}

// The combinations of candidates, over all alternatives.
double Eliminator::combinations(size_t choice_point) const {
  double sum = 0;
  for (size_t a = 0; a < problem_.choice_points[choice_point].size(); ++a) {
    double product = open_[choice_point][a] ? 1 : 0;
    for (const size_t p : problem_.choice_points[choice_point][a])
      product *= static_cast<double>(problem_.partitions[p].candidates.size());
    sum += product;
  }
  return sum;
}

bool Eliminator::join_choice_points(double most) {
  std::vector<std::vector<UsageTable*>> tables(problem_.choice_points.size());
  for (UsageTable* table : tables_) {
    for (const size_t s : table->choice_points) tables[s].push_back(table);
  }
  for (size_t s = 0; s < tables.size(); ++s) {
    if (tables[s].size() < 2 || combinations(s) > most) continue;
    if (!join_choice_point(std::move(tables[s]))) return false;
  }
  return true;
}

bool Eliminator::join_choice_point(std::vector<UsageTable*> tables) {
  while (tables.size() > 1) {
    const auto [i, j] = lightest(tables);
    if (!join_pair(*tables[i], *tables[j])) return false;
    tables[i] = tables_.back();
    tables.erase(tables.begin() + static_cast<std::ptrdiff_t>(j));
  }
  return true;
}

// Joins that do not make the problem larger.
bool Eliminator::join_cheap_pairs() {
  while (true) {
    const auto [left, right] = next_pair();
    if (left == nullptr) return true;
    const double pairs = static_cast<double>(left->rows()) * static_cast<double>(right->rows());
    if (pairs > kCheap || !left->choice_points.empty() || !right->choice_points.empty()) continue;
    std::unique_ptr<UsageTable> joined = useful_join(*left, *right);
    if (joined == nullptr) return false;
    if (joined->rows() <= left->rows() + right->rows()) replace(*left, *right, std::move(joined));
  }
}

bool Eliminator::reduce() { return make_leaves(kCheap) && join_choice_points(kCheap) && join_cheap_pairs(); }

// Joins the cheapest pairs until few tables are left or one has grown large.
bool Eliminator::join_some() {
  const size_t before = tables_.size();
  const size_t enough = before <= kFew ? 1 : before / 2;
  while (tables_.size() > enough) {
    auto [left, right] = next_pair();
    if (left == nullptr) std::tie(left, right) = std::pair(tables_[0], tables_[1]);
    if (!join_pair(*left, *right)) return false;
    if (tables_.size() > kFew && tables_.size() < before * 7 / 8 && tables_.back()->rows() > kLarge) break;
  }
  return true;
}

// Whether no alternative has several partitions, so that joining the choice points does not raise the bound.
bool Eliminator::is_condensed() const {
  const auto& points = problem_.choice_points;
  return std::all_of(points.begin(), points.end(), [](const auto& alternatives) {
    return std::all_of(alternatives.begin(), alternatives.end(), [](const auto& list) { return list.size() <= 1; });
  });
}

Elimination Eliminator::run() {
  close_unpromising();
  if (!make_leaves(kInfinity)) return std::move(result_);
  if (!join_choice_points(kInfinity)) return std::move(result_);
  if (is_condensed() && !join_some()) return std::move(result_);
  if (tables_.size() > 1) {
    solve_condensed();
  } else {
    result_.end = Elimination::End::solved;
    if (!tables_.empty()) trace(*tables_[0], 0, result_);
    choose_alternatives(result_);
  }
  return std::move(result_);
}

void Eliminator::solve_condensed() {
  const Condensed smaller = condensed();
  DualBound dual(smaller.problem);
  dual.improve(limits_.rise, limits_.bounds_until);
  const double bound = dual.bound();
  if (!result_.dropped_by_beam) result_.lower_bound = std::max(result_.lower_bound, bound);
  if (bound > limits_.cost || bound == kInfinity) {
    if (bound == kInfinity) result_.stuck = dual.stuck();
    return;
  }
  EliminationLimits rest = limits_;
  rest.rows = limits_.rows - std::min(rows_, limits_.rows);
  result_ = expanded(smaller, Eliminator(smaller.problem, dual, rest).run());
}

Elimination Eliminator::expanded(const Condensed& condensed, const Elimination& found) const {
  Elimination result = result_;
  result.end = found.end;
  if (!result.dropped_by_beam) result.lower_bound = std::max(result.lower_bound, found.lower_bound);
  result.dropped_by_beam |= found.dropped_by_beam;
  result.rows += found.rows;
  result.stuck = found.stuck;
  if (found.end != Elimination::End::solved) return result;
  for (size_t p = 0; p < condensed.partitions.size(); ++p) {
    if (found.candidates[p] < 0) continue;
    const CondensedPartition& partition = condensed.partitions[p];
    if (partition.table == nullptr)
      result.candidates[partition.partition] = found.candidates[p];
    else
      trace(*partition.table, partition.rows[as_index(found.candidates[p])], result);
  }
  choose_alternatives(result);
  return result;
}

void Eliminator::trace(const UsageTable& table, size_t row, Elimination& result) const {
  std::vector<std::pair<const UsageTable*, size_t>> open = {{&table, row}};
  while (!open.empty()) {
    const auto [current, r] = open.back();
    open.pop_back();
    const auto [x, y] = current->origin[r];
    if (current->left == nullptr) {
      result.candidates[current->id] = x;
      continue;
    }
    open.emplace_back(current->left, as_index(x));
    open.emplace_back(current->right, as_index(y));
  }
}

void Eliminator::choose_alternatives(Elimination& result) const {
  for (size_t s = 0; s < problem_.choice_points.size(); ++s)
    result.alternatives[s] = alternative_of(s, result.candidates);
}

// The alternative that consists of exactly those partitions of the choice point that have a candidate.
int Eliminator::alternative_of(size_t choice_point, const std::vector<int>& candidates) const {
  for (size_t a = 0; a < problem_.choice_points[choice_point].size(); ++a) {
    bool same = open_[choice_point][a];
    for (const auto& partitions : problem_.choice_points[choice_point]) {
      for (const size_t p : partitions) same = same && (candidates[p] >= 0) == problem_.partitions[p].in[a];
    }
    if (same) return static_cast<int>(a);
  }
  return -1;
}

}  // namespace millrace
