// Partitions, choice points, contiguous groups and rejected alternatives, as text.
#pragma once

#include <string>
#include <vector>

#include "autodiff/training_graph.h"
#include "base/text.h"
#include "candidates/candidates.h"

namespace millrace {

inline std::string partitions_text(const TrainingGraph& training, const Candidates& candidates) {
  std::string text = "partitions\n";
  const auto names = [&](const std::vector<TensorId>& tensors) {
    std::vector<std::string> list;
    for (const TensorId tensor : tensors) list.push_back(training.graph.tensor(tensor).name);
    return join(list, " ");
  };
  for (const PartitionCandidates& entry : candidates.partitions)
    text += concat("  ", entry.partition.name, ": ", names(entry.partition.reads), " -> ",
                   names(entry.partition.writes), "\n");
  text += "choice points\n";
  for (const ChoicePoint& choice_point : candidates.choice_points) {
    if (choice_point.alternatives.size() < 2) continue;
    for (size_t k = 0; k < choice_point.alternatives.size(); ++k) {
      std::vector<std::string> list;
      for (const int partition : choice_point.alternatives[k])
        list.push_back(candidates.partitions[static_cast<size_t>(partition)].partition.name);
      text += concat(k == 0 ? "  " : "  or ", join(list, "; "), "\n");
    }
  }
  text += "contiguous groups\n";
  for (const std::vector<TensorId>& group : candidates.contiguous_groups) text += concat("  ", names(group), "\n");
  text += "rejected\n";
  for (const Rejected& rejected : candidates.rejected) text += concat("  ", rejected.reason, "\n");
  return text;
}

}  // namespace millrace
