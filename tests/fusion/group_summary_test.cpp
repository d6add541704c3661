// The summaries by which groups merge: right after every merge, and cheap in programs of any size.
#include "fusion/group_summary.h"

#include <gtest/gtest.h>

#include "fusion/fuser.h"
#include "fusion/fusion_text.h"
#include "fusion/movement.h"

namespace millrace {
namespace {

std::string chain_of(int length) {
  return concat(R"(
def f(x: float32[8, 4], y: float32[8, 4]):
    for i in range()",
                length, R"():
        y = relu(y) + x
    return y
)");
}

std::string fan_of(int readers) {
  return concat(R"(
def f(x: float32[8, 4], y: float32[8, 4]):
    for i in range()",
                readers, R"():
        y = y + relu(x * i)
    return y
)");
}

// Each turn has an index of extent one for a join along it.
std::string joins_of(int length) {
  return concat(R"(
def f(x: float32[8, 4], y: float32[8, 4]):
    for i in range()",
                length, R"():
        z = relu(y) * x
        y = y + np.sum(np.concatenate([z, z]), axis=0)
    return y
)");
}

size_t tries_of(const std::string& text) {
  const TrainingGraph training = training_of(text);
  const Neighbourhood near(training);
  Fuser fuser(near);
  fuser.run();
  return fuser.tries();
}

void expect_same(const Neighbourhood& near, const FusionGroup& merged) {
  const FusionGroup again = summarized(near, merged.group);
  EXPECT_EQ(merged.summary.words, again.summary.words);
  EXPECT_EQ(merged.summary.once.words, again.summary.once.words);
  EXPECT_EQ(merged.summary.once.tensors, again.summary.once.tensors);
  EXPECT_EQ(merged.summary.spaces.distinct, again.summary.spaces.distinct);
  EXPECT_EQ(merged.summary.spaces.flows, again.summary.spaces.flows);
  EXPECT_EQ(merged.summary.whole, again.summary.whole);
  EXPECT_EQ(merged.summary.kinds, again.summary.kinds);
  const OrRejected<LoopNest> nest = find_loop_nest(near.graph, merged.group.dims, merged.summary.spaces);
  ASSERT_TRUE(nest);
  const int loops =
      count_loops(near.graph, merged.group.dims, merged.summary.spaces, *nest, operators_of(merged.group));
  const Movement movement = movement_of(near, merged.group, *nest, loops);
  EXPECT_EQ(merged.summary.words, movement.words);
  EXPECT_EQ(merged.summary.once.tensors, movement.reads.size() + movement.writes.size());
}

TEST(GroupSummary, IsThatOfTheMembersAfterAllMerges) {
  for (const std::string& model : all_models()) {
    SCOPED_TRACE(model);
    const TrainingGraph training = training_of_model(model, {"tiny"});
    const Neighbourhood near(training);
    Fuser fuser(near);
    fuser.run();
    for (const size_t number : fuser.order()) {
      const FusionGroup& group = fuser.group(number);
      if (group.group.members.size() > 1) expect_same(near, group);
    }
  }
}

// Rows that exceed fast memory are read by every loop.
TEST(GroupSummary, CountsRereadRows) {
  const TrainingGraph training = training_of(R"(
def f(x: float32[2, 20000], y: float32[2, 20000]):
    return softmax(softmax(x * y, axis=1) + y, axis=1)
)");
  const Neighbourhood near(training);
  Fuser fuser(near);
  fuser.run();
  for (const size_t number : fuser.order()) expect_same(near, fuser.group(number));
}

TEST(GroupSummary, TriesGrowWithTheProgram) {
  for (const auto& program : {chain_of, fan_of, joins_of}) {
    const size_t short_one = tries_of(program(150));
    EXPECT_LT(tries_of(program(300)), short_one * 5 / 2);
    EXPECT_LT(tries_of(program(600)), short_one * 5);
  }
}

TEST(GroupSummary, LimitsTheSizeOfAKernel) {
  const TrainingGraph training = training_of(chain_of(300));
  const FusedGraph fused = fuse(training);
  size_t largest = 0;
  for (const FusedOperator& group : fused.groups) {
    largest = std::max(largest, group.members.size());
    EXPECT_LE(group.reads.size() + group.writes.size(), kMostTensorsInMemory);
  }
  EXPECT_EQ(largest, kMostMembers);
}

}  // namespace
}  // namespace millrace
