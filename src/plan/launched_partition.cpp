#include "plan/launched_partition.h"

#include <algorithm>

#include "base/sha256.h"
#include "base/text.h"
#include "candidates/partitions.h"
#include "codegen/lower.h"

namespace millrace {
namespace {

Error no_such(const std::string& what) {
  return Error::make(ErrorKind::bad_input, concat("the program has no ", what),
                     "another version of Millrace wrote the plan: run millrace optimize again");
}

Result<Partition> find_partition(const Graph& graph, const Candidates& candidates, const PlanLaunch& launch) {
  if (!launch.partition.empty()) {
    const auto found = std::find_if(candidates.partitions.begin(), candidates.partitions.end(),
                                    [&](const PartitionCandidates& p) { return p.partition.name == launch.partition; });
    if (found == candidates.partitions.end()) return no_such(concat("partition '", launch.partition, "'"));
    return found->partition;
  }
  const auto found = std::find_if(graph.tensors.begin(), graph.tensors.end(),
                                  [&](const Tensor& tensor) { return tensor.name == launch.conversion_of; });
  if (found == graph.tensors.end()) return no_such(concat("tensor '", launch.conversion_of, "' to convert"));
  return conversion_partition(graph, TensorId(static_cast<size_t>(found - graph.tensors.begin())));
}

}  // namespace

Result<LaunchedPartition> launched_partition(const Graph& graph, const Candidates& candidates,
                                             const PlanLaunch& launch) {
  Result<Partition> partition = find_partition(graph, candidates, launch);
  if (!partition) return partition.error();
  std::optional<Candidate> candidate = parse_candidate(candidates.domains, *partition, launch.candidate);
  if (!candidate) return no_such(concat("candidate '", launch.candidate, "' for ", name_of(launch)));
  LaunchedPartition made{std::move(*partition), std::move(*candidate), {}, {}};
  made.tensors = tensors_of(made.partition);
  made.layouts = layouts_of(candidates.domains, made.partition, made.candidate);
  return made;
}

Result<std::vector<Launch>> lower_plan(const StepPlan& plan, const TrainingGraph& training,
                                       const Candidates& candidates) {
  std::vector<Launch> launches;
  for (const PlanLaunch& planned : plan.launches) {
    const Result<LaunchedPartition> found = launched_partition(training.graph, candidates, planned);
    if (!found) return found.error();
    launches.push_back(lower(training.graph, found->partition, found->layouts, found->candidate.config));
  }
  return launches;
}

std::string hash_of_sources(const std::vector<Launch>& launches, std::string_view prelude) {
  std::string all(prelude);
  for (const Launch& launch : launches) {
    all += '\0';
    all += launch.kernel;
  }
  return sha256(all);
}

}  // namespace millrace
