#include "measure/lower_bounds.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "candidates/enumerate.h"
#include "fusion/fusion_text.h"

namespace millrace {
namespace {

constexpr const char* kBoundedProgram = R"(
import numpy as np

A = 8
B = 32


def step(x: float32[A, B], w: float32[B, B], c: bool_[A, B]):
    y = np.einsum("ab,bk->ak", x, w)
    z = np.where(c, y, 0)
    return z, z[:2] * 3
)";

class LowerBoundsTest : public testing::Test {
 protected:
  void SetUp() override {
    training_ = training_of(kBoundedProgram);
    EnumerateOptions options;
    options.libraries = {GemmLibrary::openblas};
    options.threads = 2;
    Result<Candidates> found = enumerate(training_, leave_separate(training_), options);
    ASSERT_TRUE(found) << to_string(found.error());
    candidates_ = std::move(*found);
  }

  const PartitionCandidates& partition_of(OperatorKind kind) const {
    for (const PartitionCandidates& each : candidates_.partitions) {
      if (training_.graph.operators[each.partition.operators.front().at()].kind == kind) return each;
    }
    ADD_FAILURE();
    return candidates_.partitions.front();
  }

  LowerBounds bounds() const { return {training_.graph, candidates_.domains, ceilings_, trial_, 2}; }

  TrainingGraph training_;
  Candidates candidates_;
  Ceilings ceilings_;
  TrialSettings trial_;
};

TEST_F(LowerBoundsTest, WithoutCeilingsAreZero) {
  const PartitionCandidates& product = partition_of(OperatorKind::contraction);
  EXPECT_EQ(bounds().seconds(product.partition, product.candidates.front()), 0);
}

TEST_F(LowerBoundsTest, AProductTakesTheTimeOfItsFlopOrBytes) {
  const PartitionCandidates& product = partition_of(OperatorKind::contraction);
  ceilings_.flop = 1;  // of each of two threads
  EXPECT_DOUBLE_EQ(bounds().seconds(product.partition, product.candidates.front()), 2.0 * 8 * 32 * 32 / 2);
  ceilings_ = {0, 1, 0};
  EXPECT_DOUBLE_EQ(bounds().seconds(product.partition, product.candidates.front()),
                   4.0 * (8 * 32 + 32 * 32 + 8 * 32) / 2);
}

// Elements that are not selected, or that a slice leaves out, need not be read.
TEST_F(LowerBoundsTest, OnlyWhatMustBeReadCounts) {
  ceilings_ = {0, 1, 0};
  const PartitionCandidates& where = partition_of(OperatorKind::where);
  EXPECT_EQ(bounds().seconds(where.partition), 0);
  const PartitionCandidates& slice = partition_of(OperatorKind::multiply);
  double written = 0;
  for (const TensorId tensor : slice.partition.writes)
    written += static_cast<double>(elements_of(training_.graph, tensor)) * 4;
  EXPECT_DOUBLE_EQ(bounds().seconds(slice.partition), written / 2);
}

// A trial from memory finds at most twice the last-level cache in caches, spread over all copies of the tensors.
TEST_F(LowerBoundsTest, FromMemoryCachesHoldPartOfTheTensors) {
  ceilings_ = {0, 0, 1};
  const PartitionCandidates& product = partition_of(OperatorKind::contraction);
  const double bytes = 4.0 * (8 * 32 + 32 * 32 + 8 * 32);
  EXPECT_EQ(bounds().seconds(product.partition), 0);
  trial_.caches.cold = true;
  trial_.caches.cache_bytes = 1000;  // two copies
  EXPECT_DOUBLE_EQ(bounds().seconds(product.partition), bytes - 1000);
  trial_.caches.cache_bytes = int64_t{1} << 30;
  EXPECT_EQ(bounds().seconds(product.partition), 0);
}

// A candidate that is faster than its bound shows that the ceilings are too low.
TEST_F(LowerBoundsTest, AMeasurementBelowLowersAll) {
  ceilings_ = {0, 1, 0};
  const PartitionCandidates& product = partition_of(OperatorKind::contraction);
  LowerBounds lowered = bounds();
  const double before = lowered.seconds(product.partition);
  lowered.note(product.partition, product.candidates.front(), 2 * before);
  EXPECT_DOUBLE_EQ(lowered.seconds(product.partition), before);
  lowered.note(product.partition, product.candidates.front(), before / 4);
  EXPECT_DOUBLE_EQ(lowered.seconds(product.partition), before / 4);
  EXPECT_GT(lowered.conversion_seconds(product.partition.reads.front(), 0, 1), 0);
}

}  // namespace
}  // namespace millrace
