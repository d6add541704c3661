#include "plan/launched_part.h"

#include <algorithm>

#include "base/sha256.h"
#include "base/text.h"
#include "candidates/parts.h"
#include "codegen/lower.h"

namespace millrace {
namespace {

Error no_such(const std::string& what) {
  return Error::make(ErrorKind::bad_input, concat("the program has no ", what),
                     "the plan is of another version of Millrace: run millrace optimize again");
}

Result<Part> find_part(const Graph& graph, const Candidates& candidates, const PlanLaunch& launch) {
  if (!launch.part.empty()) {
    const auto found = std::find_if(candidates.parts.begin(), candidates.parts.end(),
                                    [&](const PartCandidates& p) { return p.part.name == launch.part; });
    if (found == candidates.parts.end()) return no_such(concat("part '", launch.part, "'"));
    return found->part;
  }
  const auto found = std::find_if(graph.tensors.begin(), graph.tensors.end(),
                                  [&](const Tensor& tensor) { return tensor.name == launch.conversion_of; });
  if (found == graph.tensors.end()) return no_such(concat("tensor '", launch.conversion_of, "' to convert"));
  return conversion_part(graph, TensorId(static_cast<size_t>(found - graph.tensors.begin())));
}

}  // namespace

Result<LaunchedPart> launched_part(const Graph& graph, const Candidates& candidates, const PlanLaunch& launch) {
  Result<Part> part = find_part(graph, candidates, launch);
  if (!part) return part.error();
  std::optional<Candidate> candidate = parse_candidate(candidates.domains, *part, launch.candidate);
  if (!candidate) return no_such(concat("way '", launch.candidate, "' for ", name_of(launch)));
  LaunchedPart made{std::move(*part), std::move(*candidate), {}, {}};
  made.tensors = tensors_of(made.part);
  made.layouts = layouts_of(candidates.domains, made.part, made.candidate);
  return made;
}

Result<std::vector<Launch>> lower_plan(const StepPlan& plan, const TrainingGraph& training,
                                       const Candidates& candidates) {
  std::vector<Launch> launches;
  for (const PlanLaunch& planned : plan.launches) {
    const Result<LaunchedPart> found = launched_part(training.graph, candidates, planned);
    if (!found) return found.error();
    launches.push_back(lower(training.graph, found->part, found->layouts, found->candidate.way));
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
