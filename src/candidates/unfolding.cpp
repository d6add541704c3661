// Operands of products that are unfolded. Test: tests/candidates/unfolding_test.cpp
#include <algorithm>
#include <cstdlib>

#include "candidates/candidates.h"

namespace millrace {
namespace {

bool runs_along(const ProductIndex& index, size_t operand) {
  return !index.axes[operand].empty() || index.stacks[operand];
}

// Whether an index is a row or column of the result that only this operand has.
bool is_own(const ProductIndex& index, size_t operand) {
  return !index.reduced && runs_along(index, operand) && !runs_along(index, 1 - operand);
}

bool is_window_along(const Product& product, size_t operand, const ProductAxis& axis) {
  bool contracted = false;
  bool own = false;
  for (const ProductIndex& index : product.indices) {
    const bool along = std::any_of(index.axes[operand].begin(), index.axes[operand].end(),
                                   [&](const ProductAxis& other) { return other.axis == axis.axis; });
    contracted = contracted || (along && index.reduced);
    own = own || (along && is_own(index, operand));
  }
  return contracted && own;
}

bool contains(const std::vector<int>& chain, int index) {
  return std::find(chain.begin(), chain.end(), index) != chain.end();
}

int64_t stride_of_last(const std::vector<int>& chain, const std::vector<int64_t>& strides) {
  return chain.empty() ? 0 : std::abs(strides[as_index(chain.back())]);
}

}  // namespace

bool is_window(const Product& product, size_t operand) {
  const auto is_one = [](const std::vector<TensorId>& tensors) { return tensors.size() == 1; };
  if (!std::all_of(product.tensors.begin(), product.tensors.end(), is_one)) return false;
  const bool multiplied = std::any_of(product.indices.begin(), product.indices.end(),
                                      [&](const ProductIndex& index) { return is_own(index, 1 - operand); });
  return multiplied && std::any_of(product.indices.begin(), product.indices.end(), [&](const ProductIndex& index) {
           return std::any_of(index.axes[operand].begin(), index.axes[operand].end(),
                              [&](const ProductAxis& axis) { return is_window_along(product, operand, axis); });
         });
}

std::vector<int> unfolded_indices(const Product& product, const GemmConfig& config, const std::vector<int64_t>& strides,
                                  const std::vector<int64_t>& strides_of_c) {
  std::vector<int> indices;
  for (int index = 0; index < static_cast<int>(product.indices.size()); ++index) {
    const bool in_matrix = contains(config.m, index) || contains(config.n, index) || contains(config.k, index);
    if (!in_matrix && strides[as_index(index)] != 0) indices.push_back(index);
  }
  std::stable_sort(indices.begin(), indices.end(),
                   [&](int l, int r) { return strides_of_c[as_index(l)] > strides_of_c[as_index(r)]; });
  const std::vector<int>* outer = config.unfolded == 0 ? &config.m : &config.n;
  const std::vector<int>* inner = &config.k;
  if (stride_of_last(*outer, strides) < stride_of_last(*inner, strides)) std::swap(outer, inner);
  indices.insert(indices.end(), outer->begin(), outer->end());
  indices.insert(indices.end(), inner->begin(), inner->end());
  return indices;
}

std::vector<int64_t> unfolded_strides(const Product& product, const std::vector<int>& indices) {
  std::vector<int64_t> strides(product.indices.size(), 0);
  int64_t stride = 1;
  for (size_t k = indices.size(); k-- > 0;) {
    strides[as_index(indices[k])] = stride;
    stride *= product.indices[as_index(indices[k])].extent;
  }
  return strides;
}

}  // namespace millrace
