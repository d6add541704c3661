#include <cmath>

#include "base/id.h"
#include "select/eliminator.h"

namespace millrace {
namespace {

constexpr size_t kNeighbours = 8;  // tables that a new one is paired with, per column
constexpr double kClosing = 1;     // as powers of two
constexpr double kCommon = 2;

}  // namespace

// The table that a partition was joined into.
size_t Eliminator::table_of(size_t partition) const {
  size_t table = partition;
  while (joined_into_[table] != table) table = joined_into_[table] = joined_into_[joined_into_[table]];
  return table;
}

void Eliminator::add_table(std::unique_ptr<UsageTable> table) {
  table->position = tables_.size();
  tables_.push_back(table.get());
  alive_.push_back(true);
  kept_.push_back(std::move(table));
  const UsageTable& added = *kept_.back();
  queue_pairs(added);
  for (const size_t t : added.tensors) tensor_holders_[t].push_back(added.id);
  for (const size_t s : added.choice_points) choice_point_holders_[s].push_back(added.id);
}

void Eliminator::remove_table(UsageTable& table) {
  alive_[table.id] = false;
  tables_[table.position] = tables_.back();
  tables_[table.position]->position = table.position;
  tables_.pop_back();
}

std::vector<size_t>& Eliminator::holders(std::vector<std::vector<size_t>>& lists, size_t column) {
  while (!lists[column].empty() && !alive_[lists[column].back()]) lists[column].pop_back();
  return lists[column];
}

void Eliminator::queue_pairs(const UsageTable& table) {
  std::vector<size_t> others;
  const auto collect = [&](const std::vector<size_t>& list) {
    size_t found = 0;
    for (size_t k = list.size(); k-- > 0 && found < kNeighbours;) {
      if (!alive_[list[k]]) continue;
      others.push_back(list[k]);
      ++found;
    }
  };
  for (const size_t t : table.tensors) collect(holders(tensor_holders_, t));
  for (const size_t s : table.choice_points) collect(holders(choice_point_holders_, s));
  std::sort(others.begin(), others.end());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  for (const size_t other : others) pairs_.push({weight_of(table, *kept_[other]), other, table.id});
}

// The logarithm of the number of pairs of rows. A column that the join closes counts as fewer rows.
double Eliminator::weight_of(const UsageTable& table, const UsageTable& other) const {
  size_t common = 0;
  size_t closed = 0;
  for (size_t k = 0; k < table.tensors.size(); ++k) {
    const auto found = std::find(other.tensors.begin(), other.tensors.end(), table.tensors[k]);
    if (found == other.tensors.end()) continue;
    ++common;
    const size_t touches = table.touches[k] + other.touches[as_index(found - other.tensors.begin())];
    closed += touches == problem_.tensors[table.tensors[k]].touches.size() ? 1U : 0U;
  }
  for (const size_t s : table.choice_points) common += contains(other.choice_points, s) ? 1U : 0U;
  const double pairs = static_cast<double>(table.rows()) * static_cast<double>(other.rows());
  return std::log2(pairs) - kClosing * static_cast<double>(closed) - kCommon * static_cast<double>(common);
}

// The pair with the least weight in a short list of tables. Only neighbours in the list are considered.
std::pair<size_t, size_t> Eliminator::lightest(const std::vector<UsageTable*>& tables) const {
  std::pair<size_t, size_t> chosen = {0, 1};
  double least = kInfinity;
  for (size_t i = 0; i < tables.size(); ++i) {
    for (size_t j = i + 1; j < std::min(tables.size(), i + 1 + kNeighbours); ++j) {
      const double weight = weight_of(*tables[i], *tables[j]);
      if (weight >= least) continue;
      least = weight;
      chosen = {i, j};
    }
  }
  return chosen;
}

std::pair<UsageTable*, UsageTable*> Eliminator::next_pair() {
  while (!pairs_.empty()) {
    const Pair pair = pairs_.top();
    pairs_.pop();
    if (alive_[pair.left] && alive_[pair.right]) return {kept_[pair.left].get(), kept_[pair.right].get()};
  }
  return {nullptr, nullptr};
}

}  // namespace millrace
