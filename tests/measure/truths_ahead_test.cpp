// A truth that was begun is the one that would have been worked out when it was asked for.
#include "measure/gpu/truths_ahead.h"

#include <gtest/gtest.h>

#include "candidates/enumerate.h"
#include "fusion/fusion_text.h"

namespace millrace {
namespace {

constexpr uint64_t kAheadSeed = 7;

class TruthsAheadTest : public testing::Test {
 protected:
  void SetUp() override {
    training_ = training_of(R"(
B = 4
J = 6


def layer(x: float32[B, J], w: float32[J, J], b: float32[J]):
    y = np.einsum("bj,jk->bk", x, w) + b
    return dropout(softmax(y), p=0.5)
)");
    Result<Candidates> found = enumerate(training_, fuse(training_), {});
    ASSERT_TRUE(found);
    candidates_ = std::move(*found);
    ASSERT_GT(candidates_.parts.size(), 5U);
  }

  const Part& part(size_t number) const { return candidates_.parts[number].part; }

  void expect_right(TruthsAhead& ahead, size_t number) const {
    const Result<Truth> found = ahead.take(part(number).name, part(number));
    const Result<Truth> right = truth_of(training_.graph, part(number), kAheadSeed);
    ASSERT_TRUE(found && right);
    EXPECT_EQ(found->inputs, right->inputs);
    ASSERT_EQ(found->outputs.size(), right->outputs.size());
    for (size_t k = 0; k < right->outputs.size(); ++k) {
      EXPECT_EQ(found->outputs[k].values, right->outputs[k].values);
      EXPECT_EQ(found->outputs[k].tolerances, right->outputs[k].tolerances);
    }
  }

  TrainingGraph training_;
  Candidates candidates_;
};

TEST_F(TruthsAheadTest, WhatWasBegunIsWhatIsAskedFor) {
  TruthsAhead ahead(training_.graph, kAheadSeed, {3, 1e9});
  // More than are begun at a time, in another order than they are asked for, and one of them twice.
  for (size_t k = candidates_.parts.size(); k-- > 0;) ahead.begin(part(k).name, part(k));
  ahead.begin(part(0).name, part(0));
  for (size_t k = 0; k < candidates_.parts.size(); ++k) {
    if (k + 1 < candidates_.parts.size()) ahead.begin(part(k + 1).name, part(k + 1));
    expect_right(ahead, k);
  }
  expect_right(ahead, 0);
}

TEST_F(TruthsAheadTest, WithoutRoomItIsWorkedOutWhenAskedFor) {
  TruthsAhead ahead(training_.graph, kAheadSeed, {3, 0});
  ahead.begin(part(0).name, part(0));
  expect_right(ahead, 0);
}

TEST_F(TruthsAheadTest, WhatNobodyTakesIsLeft) {
  TruthsAhead ahead(training_.graph, kAheadSeed, {3, 1e9});
  ahead.begin(part(0).name, part(0));
}

}  // namespace
}  // namespace millrace
