// A contraction in one layout of each operand: the strides of its indices, which indices merge into one index of a
// matrix, and whether an operand is a matrix. Test: tests/candidates/product_strides_test.cpp
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "candidates/candidates.h"

namespace millrace {

inline constexpr size_t kA = 0;
inline constexpr size_t kB = 1;
inline constexpr size_t kC = 2;
inline constexpr size_t kV = kVectorOperand;

using Chain = std::vector<int>;  // indices of the product, outermost first, merged into one index of a matrix

// A product's m, n or k: the operands that run along its indices, and the one that does not.
struct ProductRole {
  size_t one;
  size_t two;
  size_t other;
  bool reduced;
};
inline constexpr std::array<ProductRole, 3> kProductRoles = {
    {{kA, kC, kB, false}, {kB, kC, kA, false}, {kA, kB, kC, true}}};

// The indices of the matrices of one call. It does not own the chains.
struct GemmChains {
  const Chain* m = nullptr;
  const Chain* n = nullptr;
  const Chain* k = nullptr;

  bool operator==(const GemmChains& other) const { return m == other.m && n == other.n && k == other.k; }
};

// Which of the result's two indices has unit stride, and the other one.
struct ResultOrder {
  const Chain& column;
  const Chain& row;
};

class ProductStrides {
 public:
  using Strides = std::vector<int64_t>;  // of one operand, by index of the product

  explicit ProductStrides(const Product& product) : product_(product) {}

  // Chooses an operand's layout by its strides, which must outlive their use. Returns the previous strides.
  const Strides* set(size_t operand, const Strides& strides) { return std::exchange(strides_[operand], &strides); }
  const Strides& of(size_t operand) const { return *strides_[operand]; }

  int64_t along(size_t operand, int index) const { return (*strides_[operand])[as_index(index)]; }
  int64_t stride(size_t operand, const Chain& chain) const { return chain.empty() ? 1 : along(operand, chain.back()); }
  int64_t extent(const Chain& chain) const;
  bool merges(int outer, int inner, size_t operand) const {
    return along(operand, outer) == along(operand, inner) * product_.indices[as_index(inner)].extent;
  }
  bool merges(const Chain& chain, size_t operand) const;

  // The indices that `one` and `two` run along and `other` does not.
  Chain indices_of(const ProductRole& role) const;
  // Indices as chains: two are in one chain if they merge in each of the operands. At least one chain, which may be
  // empty: an extent of one.
  std::vector<Chain> chains_of(Chain indices, const std::vector<size_t>& operands) const;
  // The indices that are in none of the matrices.
  std::vector<int> loops_around(const GemmChains& chains) const;

  // Whether one of the matrix's two indices has stride 1.
  bool has_unit_stride(size_t operand, const Chain& one, const Chain& two) const {
    return stride(operand, one) == 1 || stride(operand, two) == 1;
  }
  bool has_unit_strides(const GemmChains& chains) const;  // a, b and c
  // Whether a, b and c are matrices: strides are positive, and the larger one steps over all elements of the smaller.
  // The windows of a convolution overlap, and the rows of some slices interleave.
  bool are_matrices(const GemmChains& chains) const;
  // Whether two points of the product read the same element of an operand that runs along all their indices, or the
  // operand is read backwards.
  bool overlaps(size_t operand) const;
  ResultOrder result_order(const GemmChains& chains) const;
  // Whether there is memory between the rows of a product's result.
  bool has_gaps(const GemmChains& chains) const;

 private:
  bool is_matrix(size_t operand, const Chain& one, const Chain& two) const;

  const Product& product_;
  std::array<const Strides*, 4> strides_{};  // of a, b, c and the vector
};

}  // namespace millrace
