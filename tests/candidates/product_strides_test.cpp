// Which indices of a product merge into one index of a matrix, and which operands are matrices.
#include "candidates/product_strides.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// c[b, i, j] = Σk a[b, i, k] b[k, j], of sizes 2, 3, 4 and 5: indices 0 to 3.
class ProductStridesTest : public testing::Test {
 protected:
  static constexpr int kBatch = 0;
  static constexpr int kI = 1;
  static constexpr int kJ = 2;
  static constexpr int kK = 3;

  ProductStridesTest() {
    for (const int64_t extent : {2, 3, 4, 5}) {
      ProductIndex index;
      index.extent = extent;
      index.reduced = extent == 5;
      product_.indices.push_back(index);
    }
    set_all();
  }

  void set_all() {
    strides_.set(kA, a_);
    strides_.set(kB, b_);
    strides_.set(kC, c_);
  }

  std::vector<Chain> chains_of(size_t role) const {
    const ProductRole& described = kProductRoles[role];
    return strides_.chains_of(strides_.indices_of(described), {described.one, described.two});
  }

  Product product_;
  ProductStrides::Strides a_ = {15, 5, 0, 1};
  ProductStrides::Strides b_ = {0, 0, 1, 4};
  ProductStrides::Strides c_ = {12, 4, 1, 0};
  ProductStrides strides_{product_};
};

using Chains = std::vector<Chain>;

TEST_F(ProductStridesTest, IndicesMergeIfBothOperandsAllowIt) {
  EXPECT_EQ(chains_of(0), (Chains{{kBatch, kI}}));
  EXPECT_EQ(chains_of(1), (Chains{{kJ}}));
  EXPECT_EQ(chains_of(2), (Chains{{kK}}));
  EXPECT_EQ(strides_.extent({kBatch, kI}), 6);
  EXPECT_EQ(strides_.stride(kC, {kBatch, kI}), 4);
  const ProductStrides::Strides gap = {16, 4, 1, 0};
  EXPECT_EQ(strides_.set(kC, gap), &c_);
  EXPECT_EQ(chains_of(0), (Chains{{kBatch}, {kI}}));
}

TEST_F(ProductStridesTest, AnIndexThatNoOperandHasIsAnEmptyChain) {
  b_ = {0, 0, 0, 1};
  EXPECT_EQ(chains_of(1), Chains{{}});
  EXPECT_EQ(strides_.extent({}), 1);
  EXPECT_EQ(strides_.stride(kB, {}), 1);
}

TEST_F(ProductStridesTest, LoopsAreTheIndicesOutsideTheMatrices) {
  const Chain i = {kI};
  const Chain j = {kJ};
  const Chain k = {kK};
  EXPECT_EQ(strides_.loops_around({&i, &j, &k}), std::vector<int>{kBatch});
}

class ProductMatrices : public ProductStridesTest {
 protected:
  GemmChains chains() const { return {&m_, &n_, &k_}; }

  Chain m_ = {kBatch, kI};
  Chain n_ = {kJ};
  Chain k_ = {kK};
};

TEST_F(ProductMatrices, HaveDistinctElements) {
  EXPECT_TRUE(strides_.are_matrices(chains()));
  a_ = {9, 3, 0, 1};  // rows of 5 elements, 3 apart
  EXPECT_FALSE(strides_.are_matrices(chains()));
  EXPECT_TRUE(strides_.overlaps(kA));
  a_ = {15, 5, 0, -1};
  EXPECT_FALSE(strides_.are_matrices(chains()));
  EXPECT_TRUE(strides_.overlaps(kA));
  a_ = {21, 7, 0, 1};  // rows with gaps
  EXPECT_TRUE(strides_.are_matrices(chains()));
  EXPECT_FALSE(strides_.overlaps(kA));
}

TEST_F(ProductMatrices, HaveUnitStrideAlongEitherIndex) {
  EXPECT_TRUE(strides_.has_unit_strides(chains()));
  b_ = {0, 0, 5, 1};
  EXPECT_TRUE(strides_.has_unit_strides(chains()));
  b_ = {0, 0, 2, 8};
  EXPECT_FALSE(strides_.has_unit_strides(chains()));
}

TEST_F(ProductMatrices, TheResultsColumnHasUnitStride) {
  EXPECT_EQ(&strides_.result_order(chains()).column, &n_);
  EXPECT_FALSE(strides_.has_gaps(chains()));
  c_ = {18, 6, 1, 0};
  EXPECT_TRUE(strides_.has_gaps(chains()));
  c_ = {3, 1, 6, 0};  // stored by columns
  EXPECT_EQ(&strides_.result_order(chains()).column, &m_);
  EXPECT_FALSE(strides_.has_gaps(chains()));
}

}  // namespace
}  // namespace millrace
