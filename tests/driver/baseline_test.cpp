// The plan before optimization runs every operator by itself, and its result is the program's.
#include "driver/baseline.h"

#include <gtest/gtest.h>

#include "plan/plan_json.h"
#include "plan/verify.h"

namespace millrace {
namespace {

constexpr const char* kText = R"(
from millrace import numpy as np

B, I, J = 4, 3, 5

def layer(x: np.float32[B, I], w: np.float32[I, J], b: np.float32[J]):
    y = np.einsum("bi,ij->bj", x, w) + b
    return np.maximum(y, 0) * 2
)";

class BaselineTest : public testing::Test {
 protected:
  Tuned tuned() {
    Result<Machine> machine = find_machine("cpu", 1);
    EXPECT_TRUE(machine) << to_string(machine.error());
    TuneProgram program{{"layer.py", "", {}, ""}, kText, {}, "cpu", Fusing::fused};
    Stages stages;
    Result<Prepared> prepared = prepare(stages, program);
    EXPECT_TRUE(prepared) << to_string(prepared.error());
    return {std::move(program), std::move(*prepared), std::move(*machine), {}, true, 5};
  }
};

TEST_F(BaselineTest, EveryLaunchIsOneOperator) {
  const Tuned fused = tuned();
  const Result<Baseline> made = make_baseline(fused);
  ASSERT_TRUE(made) << to_string(made.error());
  const TrainingGraph& training = made->prepared.training;
  EXPECT_EQ(made->selected.plan.launches.size(), training.graph.operators.size());
  EXPECT_EQ(training.repeated.size() + training.predicates.size() + training.statistics.size(), 0U);
  EXPECT_EQ(made->unmeasured, made->selected.plan.launches.size()) << "nothing was measured";
  EXPECT_GT(made->selected.plan.launches.size(), fused.prepared.fused.groups.size());
}

TEST_F(BaselineTest, IsAPlanThatCanBeWrittenAndRead) {
  const Result<Baseline> made = make_baseline(tuned());
  ASSERT_TRUE(made) << to_string(made.error());
  const Result<StepPlan> read = parse_plan(plan_json(made->selected.plan), "plan.json");
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(read->program.fusing, Fusing::separate);
  const Result<Done> valid = verify(*read, made->prepared.training, made->prepared.candidates);
  EXPECT_TRUE(valid) << to_string(valid.error());
}

TEST_F(BaselineTest, TakesTheFastestMeasuredCandidate) {
  Tuned fused = tuned();
  const Result<Baseline> expected = make_baseline(fused);
  ASSERT_TRUE(expected) << to_string(expected.error());
  // Measure one operator: the last candidate under the written layouts, with a time that no model expects.
  for (const PartitionCandidates& entry : fused.prepared.candidates.partitions) {
    if (entry.partition.operators.size() != 1 || entry.partition.kind != PartitionKind::kernel) continue;
    const std::vector<TensorDomain>& domains = fused.prepared.candidates.domains;
    std::vector<int> layouts;
    for (const TensorId tensor : tensors_of(entry.partition))
      layouts.push_back(std::max(0, domains[tensor.at()].pinned));
    const std::vector<Candidate> all =
        configs_under(fused.prepared.training.graph, domains, enumerate_options(fused.program, fused.machine),
                      entry.partition, layouts);
    const std::string text = print_candidate(domains, entry.partition, all.back());
    fused.explored.measurements.partitions.push_back(
        {entry.partition.name, false, {}, {}, {{text, layouts, 1e-3, 0.9e-3, 1.1e-3}}});
    break;
  }
  const Result<Baseline> made = make_baseline(fused);
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_LT(made->unmeasured, expected->unmeasured);
  EXPECT_GT(made->selected.plan.cost, 1e-3);
}

}  // namespace
}  // namespace millrace
