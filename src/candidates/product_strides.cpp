#include "candidates/product_strides.h"

#include <algorithm>

namespace millrace {

int64_t ProductStrides::extent(const Chain& chain) const {
  int64_t points = 1;
  for (const int index : chain) points *= product_.indices[as_index(index)].extent;
  return points;
}

bool ProductStrides::merges(const Chain& chain, size_t operand) const {
  for (size_t at = 0; at + 1 < chain.size(); ++at) {
    if (!merges(chain[at], chain[at + 1], operand)) return false;
  }
  return true;
}

Chain ProductStrides::indices_of(const ProductRole& role) const {
  Chain indices;
  for (int k = 0; k < static_cast<int>(product_.indices.size()); ++k) {
    const bool fits = product_.indices[as_index(k)].reduced == role.reduced && along(role.one, k) != 0 &&
                      along(role.two, k) != 0 && along(role.other, k) == 0;
    if (fits) indices.push_back(k);
  }
  return indices;
}

std::vector<Chain> ProductStrides::chains_of(Chain indices, const std::vector<size_t>& operands) const {
  const size_t one = operands.front();
  std::sort(indices.begin(), indices.end(), [&](int l, int r) { return along(one, l) > along(one, r); });
  std::vector<Chain> found;
  for (const int index : indices) {
    const bool joins = !found.empty() && std::all_of(operands.begin(), operands.end(), [&](size_t operand) {
      return merges(found.back().back(), index, operand);
    });
    if (joins) {
      found.back().push_back(index);
    } else {
      found.emplace_back(1, index);
    }
  }
  if (found.empty()) found.emplace_back();
  return found;
}

std::vector<int> ProductStrides::loops_around(const GemmChains& chains) const {
  std::vector<int> loops;
  for (int index = 0; index < static_cast<int>(product_.indices.size()); ++index) {
    const auto in = [&](const Chain& chain) { return std::find(chain.begin(), chain.end(), index) != chain.end(); };
    if (!in(*chains.m) && !in(*chains.n) && !in(*chains.k)) loops.push_back(index);
  }
  return loops;
}

bool ProductStrides::is_matrix(size_t operand, const Chain& one, const Chain& two) const {
  const std::array<int64_t, 2> extents = {extent(one), extent(two)};
  const std::array<int64_t, 2> strides = {stride(operand, one), stride(operand, two)};
  for (const size_t side : {0U, 1U}) {
    if (extents[side] > 1 && strides[side] < 1) return false;
  }
  if (extents[0] == 1 || extents[1] == 1) return true;
  const size_t inner = strides[0] < strides[1] ? 0 : 1;
  return strides[1 - inner] >= extents[inner] * strides[inner];
}

bool ProductStrides::are_matrices(const GemmChains& chains) const {
  const auto& [m, n, k] = chains;
  return is_matrix(kA, *m, *k) && is_matrix(kB, *k, *n) && is_matrix(kC, *m, *n);
}

bool ProductStrides::has_unit_strides(const GemmChains& chains) const {
  const auto& [m, n, k] = chains;
  return has_unit_stride(kA, *m, *k) && has_unit_stride(kB, *k, *n) && has_unit_stride(kC, *m, *n);
}

bool ProductStrides::overlaps(size_t operand) const {
  std::vector<std::pair<int64_t, int64_t>> strides;
  for (size_t index = 0; index < product_.indices.size(); ++index) {
    const int64_t stride = along(operand, static_cast<int>(index));
    if (stride != 0) strides.emplace_back(stride, product_.indices[index].extent);
  }
  std::sort(strides.begin(), strides.end());
  int64_t reach = 0;
  for (const auto& [stride, extent] : strides) {
    if (stride <= reach) return true;
    reach += stride * (extent - 1);
  }
  return false;
}

ResultOrder ProductStrides::result_order(const GemmChains& chains) const {
  const bool m_is_column = stride(kC, *chains.m) == 1 && !chains.m->empty();
  return m_is_column ? ResultOrder{*chains.m, *chains.n} : ResultOrder{*chains.n, *chains.m};
}

bool ProductStrides::has_gaps(const GemmChains& chains) const {
  const auto& [column, row] = result_order(chains);
  return extent(row) > 1 && stride(kC, row) != extent(column);
}

}  // namespace millrace
