#include <algorithm>
#include <numeric>

#include "base/id.h"
#include "select/eliminator.h"

namespace millrace {
namespace {

constexpr size_t kCompared = 12;  // rows that a row is compared with

// Keeps these rows of a table, in this order.
void keep(UsageTable& table, const std::vector<size_t>& rows) {
  std::vector<int> cells;
  std::vector<double> cost;
  std::vector<std::pair<int, int>> origin;
  for (const size_t r : rows) {
    cells.insert(cells.end(), table.row(r), table.row(r) + table.width());
    cost.push_back(table.cost[r]);
    origin.push_back(table.origin[r]);
  }
  table.cells = std::move(cells);
  table.cost = std::move(cost);
  table.origin = std::move(origin);
}

}  // namespace

// Keeps as many rows as the beam is wide. Later rows of this join must be more promising than those that were dropped.
void Eliminator::keep_most_promising(Joining& joining) {
  UsageTable& table = *joining.result;
  std::vector<double>& promises = joining.promises;
  std::vector<size_t> order(table.rows());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto last = order.begin() + static_cast<std::ptrdiff_t>(limits_.beam);
  std::nth_element(order.begin(), last, order.end(), [&](size_t a, size_t b) { return promises[a] < promises[b]; });
  joining.most = std::min(joining.most, promises[*last]);
  rows_ -= order.size() - limits_.beam;
  order.erase(last, order.end());
  result_.dropped_by_beam = true;
  keep(table, order);
  std::vector<double> kept;
  std::vector<RowKey> keys;
  joining.known->clear();
  for (size_t r = 0; r < order.size(); ++r) {
    kept.push_back(promises[order[r]]);
    keys.push_back(joining.keys[order[r]]);
    (*joining.known)[keys.back()] = static_cast<int64_t>(r);
  }
  promises = std::move(kept);
  joining.keys = std::move(keys);
}

// Drops dominated rows. A row dominates another if it costs no more even with all conversions that only it needs.
void Eliminator::drop_dominated(UsageTable& table) const {
  std::vector<size_t> order(table.rows());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return table.cost[a] < table.cost[b]; });
  std::unordered_map<std::vector<int>, std::vector<size_t>, CellsHash> kept;  // by bases and alternatives
  const auto dominates = [&](size_t row, size_t other) {
    double left = table.cost[other] - table.cost[row];
    for (size_t k = 0; k < table.tensors.size() && left >= 0; ++k) {
      const size_t t = table.tensors[k];
      if (table.row(row)[k] != table.row(other)[k])
        left -= surplus(t, usages_[t][table.row(row)[k]], usages_[t][table.row(other)[k]]);
    }
    return left >= 0;
  };
  std::vector<size_t> rows;
  for (const size_t r : order) {
    std::vector<int> key(table.row(r), table.row(r) + table.width());
    for (size_t k = 0; k < table.tensors.size(); ++k) key[k] = usages_[table.tensors[k]][key[k]].base;
    std::vector<size_t>& others = kept[std::move(key)];
    if (std::any_of(others.begin(), others.end(), [&](size_t other) { return dominates(other, r); })) continue;
    if (others.size() < kCompared) others.push_back(r);
    rows.push_back(r);
  }
  keep(table, rows);
}

}  // namespace millrace
