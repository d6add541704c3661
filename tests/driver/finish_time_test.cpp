#include "driver/finish_time.h"

#include <gtest/gtest.h>

#include <limits>

#include "fusion/fusion_text.h"

namespace millrace {
namespace {

Machine machine_of(int cores) {
  Machine machine;
  machine.cpu.cores = cores;
  return machine;
}

TEST(FinishTime, MoreKernelsTakeLongerAndMoreCoresLessTime) {
  EXPECT_EQ(compile_seconds(0, machine_of(2)), 0);
  EXPECT_LT(compile_seconds(4, machine_of(2)), compile_seconds(40, machine_of(2)));
  EXPECT_LT(compile_seconds(40, machine_of(16)), compile_seconds(40, machine_of(2)));
}

// Three kernels: two are equal, and one has more operators than the others together.
TEST(FinishTime, EqualKernelsAreCompiledOnceAndLongOnesTakeLonger) {
  const TrainingGraph training = training_of(R"(
import numpy as np

N = 8


def step(x: float32[N]):
    return np.exp(x)
)");
  Candidates candidates;
  PartitionCandidates small;
  small.partition.operators = small.partition.members = {OperatorId(0)};
  small.partition.index_of = {{0}};
  candidates.partitions = {small, small};
  candidates.choice_points = {{{{0}}}, {{{1}}}};
  EXPECT_EQ(kernels_to_compile(training.graph, candidates), 1);
  PartitionCandidates large = small;
  large.partition.members.resize(100, OperatorId(0));
  large.partition.operators = large.partition.members;
  large.partition.index_of.resize(100, {0});
  candidates.partitions.push_back(large);
  candidates.choice_points.push_back({{{2}}});
  EXPECT_GT(kernels_to_compile(training.graph, candidates), 5);
}

TEST(FinishTime, AllCoresDrawTheArguments) {
  Graph graph;
  graph.dims.push_back({"N", 1 << 20});
  Tensor tensor;
  tensor.role = TensorRole::argument;
  tensor.dims = {DimId(0)};
  graph.tensors.push_back(tensor);
  EXPECT_GT(draw_seconds(graph, machine_of(1)), 4 * draw_seconds(graph, machine_of(16)));
  EXPECT_GT(draw_seconds(graph, machine_of(1024)), 0) << "copying";
}

TEST(FinishTime, ABusyMachineNeedsLonger) {
  Machine busy = machine_of(2);
  busy.compiler_seconds *= 4;
  EXPECT_GT(compile_seconds(10, busy), 3 * compile_seconds(10, machine_of(2)));
}

TEST(FinishTime, LeavesAPartOfABudgetToExploring) {
  Result<Machine> machine = find_machine("cpu", 1);
  ASSERT_TRUE(machine) << to_string(machine.error());
  for (const double budget : {0.1, 1.0, 5.0, 60.0, 3600.0}) {
    const FinishTime time = finish_time({}, *machine, budget);
    EXPECT_GT(time.reserved, 0);
    EXPECT_LE(time.reserved, 0.7 * budget);
    EXPECT_LT(time.grace, 0.1 * budget + 5);
  }
}

TEST(FinishTime, TheGraceIsLessThanACommandMayTakeLonger) {
  for (const double budget : {0.1, 5.0, 60.0, 3600.0}) EXPECT_LT(grace_seconds(budget), 0.1 * budget + 5);
}

TEST(FinishTime, SelectsLongerWithALargerBudget) {
  EXPECT_LT(select_seconds(5), select_seconds(60));
  EXPECT_EQ(select_seconds(std::numeric_limits<double>::infinity()), select_seconds(3600)) << "no budget";
}

}  // namespace
}  // namespace millrace
