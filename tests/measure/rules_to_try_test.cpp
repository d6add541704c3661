#include "measure/rules_to_try.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "candidates/enumerate.h"
#include "fusion/fusion_text.h"
#include "measure/reference_data.h"

namespace millrace {
namespace {

// For every partition with this operator: whether some outputs are not zero.
std::vector<bool> computes_something(const std::string& expression, OperatorKind kind) {
  const TrainingGraph training =
      training_of("def f(x: float32[6, 9], y: float32[6, 9]):\n    return " + expression + "\n");
  const Graph& graph = training.graph;
  const Result<Candidates> found = find_partitions(training, fuse(training), EnumerateOptions{});
  EXPECT_TRUE(found);
  std::vector<bool> computed;
  for (const PartitionCandidates& entry : found->partitions) {
    const std::vector<OperatorId>& all = entry.partition.operators;
    if (std::none_of(all.begin(), all.end(), [&](OperatorId id) { return graph.operators[id.at()].kind == kind; }))
      continue;
    const Result<ReferenceData> data = make_reference_data(graph, draw_rules(graph), entry.partition, 7);
    EXPECT_TRUE(data);
    for (const Expected& output : data->outputs)
      computed.push_back(
          std::any_of(output.values.begin(), output.values.end(), [](double value) { return value != 0; }));
  }
  return computed;
}

TEST(RulesToTry, GradientsOfExtremaAreNotAllZero) {
  for (const std::string function : {"np.max", "np.min"}) {
    const std::vector<bool> computed = computes_something(function + "(np.exp(x), axis=1)", OperatorKind::extremum_dx);
    EXPECT_FALSE(computed.empty());
    for (const bool something : computed) EXPECT_TRUE(something) << function;
  }
}

TEST(RulesToTry, TensorsAreSometimesEqual) {
  const std::vector<bool> computed = computes_something("np.where(x == y, x + 1, 0 * y)", OperatorKind::equal);
  EXPECT_FALSE(computed.empty());
  for (const bool something : computed) EXPECT_TRUE(something);
}

TEST(RulesToTry, OthersAreDrawnAsTheyAre) {
  const TrainingGraph training = training_of("def f(x: float32[4]):\n    return np.exp(x)\n");
  const DrawRules rules = draw_rules(training.graph);
  const Result<Candidates> found = find_partitions(training, fuse(training), EnumerateOptions{});
  ASSERT_TRUE(found);
  const std::vector<DrawRules> tried = rules_to_try(training.graph, rules, found->partitions.front().partition);
  ASSERT_EQ(tried.size(), 2U);
  EXPECT_EQ(tried[0], rules);
  EXPECT_EQ(tried[1].front().middle, 0.625);
}

}  // namespace
}  // namespace millrace
