// A plan's launch resolved among the candidates, and lowered for a device. Test: tests/plan/build_test.cpp
#pragma once

#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "device/launch.h"
#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

struct LaunchedPartition {
  Partition partition;  // a conversion has one of its own
  Candidate candidate;
  std::vector<TensorId> tensors;  // reads, then writes
  std::vector<Layout> layouts;    // one per tensor
};

// Checks only that the partition exists and that the candidate's text fits it.
Result<LaunchedPartition> launched_partition(const Graph& graph, const Candidates& candidates,
                                             const PlanLaunch& launch);

// All launches, lowered, in order. For plans that verify() accepts.
Result<std::vector<Launch>> lower_plan(const StepPlan& plan, const TrainingGraph& training,
                                       const Candidates& candidates);

// The sha256 of the kernels' sources. An object compiled from other sources is not used.
std::string hash_of_sources(const std::vector<Launch>& launches, std::string_view prelude);

}  // namespace millrace
