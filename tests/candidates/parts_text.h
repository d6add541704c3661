// Parts, sites, families and what was declined, as text.
#pragma once

#include <string>
#include <vector>

#include "autodiff/training_graph.h"
#include "base/text.h"
#include "candidates/candidates.h"

namespace millrace {

inline std::string parts_text(const TrainingGraph& training, const Candidates& candidates) {
  std::string text = "parts\n";
  const auto names = [&](const std::vector<TensorId>& tensors) {
    std::vector<std::string> list;
    for (const TensorId tensor : tensors) list.push_back(training.graph.tensor(tensor).name);
    return join(list, " ");
  };
  for (const PartCandidates& of : candidates.parts)
    text += concat("  ", of.part.name, ": ", names(of.part.reads), " -> ", names(of.part.writes), "\n");
  text += "sites with a choice\n";
  for (const Site& site : candidates.sites) {
    if (site.alternatives.size() < 2) continue;
    for (size_t k = 0; k < site.alternatives.size(); ++k) {
      std::vector<std::string> list;
      for (const int part : site.alternatives[k]) list.push_back(candidates.parts[static_cast<size_t>(part)].part.name);
      text += concat(k == 0 ? "  " : "  or ", join(list, "; "), "\n");
    }
  }
  text += "families\n";
  for (const std::vector<TensorId>& family : candidates.families) text += concat("  ", names(family), "\n");
  text += "declined\n";
  for (const Declined& declined : candidates.declined) text += concat("  ", declined.reason, "\n");
  return text;
}

}  // namespace millrace
