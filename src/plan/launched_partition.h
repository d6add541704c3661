// What a launch of a plan carries out, looked up among the candidates, and how: as a device is asked for it.
#pragma once

#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "device/launch.h"
#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

struct LaunchedPartition {
  Partition partition;  // of a conversion one of its own
  Candidate candidate;
  std::vector<TensorId> tensors;  // reads, then writes
  std::vector<Layout> layouts;    // one a tensor
};

// Nothing but that there is such a partition and that the candidate's text fits it.
Result<LaunchedPartition> launched_partition(const Graph& graph, const Candidates& candidates,
                                             const PlanLaunch& launch);

// All launches as the device takes them, in their order. For plans that verify() accepts.
Result<std::vector<Launch>> lower_plan(const StepPlan& plan, const TrainingGraph& training,
                                       const Candidates& candidates);

// The sha256 of all that the kernels are compiled from: an object that was made of other sources is not used.
std::string hash_of_sources(const std::vector<Launch>& launches, std::string_view prelude);

}  // namespace millrace
