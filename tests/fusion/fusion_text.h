// Program text to the text of fused groups.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "autodiff/differentiate.h"
#include "autodiff/verify.h"
#include "base/text.h"
#include "frontend/program_text.h"
#include "fusion/fuse.h"
#include "golden/golden.h"

namespace millrace {

// The layers that most tests look into.
inline const std::vector<std::string>& models() {
  static const std::vector<std::string> names = {"bert_encoder", "encoder_decoder_attention", "gpt2_block_unpacked",
                                                 "llama_block_without_rope", "mha"};
  return names;
}

// All programs in models/.
inline std::vector<std::string> all_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(concat(MILLRACE_SOURCE_DIR, "/models"))) {
    if (entry.path().extension() == ".py") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline TrainingGraph training_of(std::string_view text, const ProgramOptions& options = {}) {
  TrainingGraph training = differentiate(graph_of(text, options));
  const Result<Done> checked = verify(training);
  EXPECT_TRUE(checked) << to_string(checked.error());
  return training;
}

// `sizes` as on the command line: "tiny", "J=128"; empty: the program's defaults.
inline TrainingGraph training_of_model(const std::string& model, std::vector<std::string> sizes = {}) {
  return training_of(text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/", model, ".py")), with_sizes(std::move(sizes)));
}

inline std::vector<std::string> member_names(const TrainingGraph& training, const FusedOperator& group) {
  std::vector<std::string> names;
  for (const OperatorId member : group.members) names.push_back(training.graph.operators[member.at()].name);
  return names;
}

// The members of each kernel, one kernel per line, sorted.
inline std::string kernels_of(const TrainingGraph& training, const FusedGraph& fused) {
  std::vector<std::string> lines;
  for (const FusedOperator& group : fused.groups) {
    if (group.kind == FusedKind::kernel) lines.push_back(join(member_names(training, group), ", ") + "\n");
  }
  std::sort(lines.begin(), lines.end());
  return join(lines, "");
}

inline std::string kernels_of(std::string_view text) {
  const TrainingGraph training = training_of(text);
  return kernels_of(training, fuse(training));
}

inline OperatorId operator_called(const TrainingGraph& training, std::string_view name) {
  for (size_t k = 0; k < training.graph.operators.size(); ++k) {
    if (training.graph.operators[k].name == name) return OperatorId(k);
  }
  ADD_FAILURE() << "no operator is named " << name << " among " << names_of_operators(training.graph);
  return {};
}

// The group that an operator is in.
inline const FusedOperator& group_with(const TrainingGraph& training, const FusedGraph& fused, std::string_view name) {
  const OperatorId id = operator_called(training, name);
  for (const FusedOperator& group : fused.groups) {
    if (std::find(group.members.begin(), group.members.end(), id) != group.members.end()) return group;
  }
  ADD_FAILURE() << name << " is in no group";
  return fused.groups.front();
}

inline bool together(const TrainingGraph& training, const FusedGraph& fused, std::string_view a, std::string_view b) {
  return &group_with(training, fused, a) == &group_with(training, fused, b);
}

// The explanation for two neighbours: "fused: …" or "separate: …"; empty if they are not neighbours.
inline std::string explained(const TrainingGraph& training, const FusedGraph& fused, std::string_view a,
                             std::string_view b) {
  const OperatorId first = operator_called(training, a);
  const OperatorId second = operator_called(training, b);
  for (const PairExplanation& pair : explain(training, fused)) {
    if ((pair.first == first && pair.second == second) || (pair.first == second && pair.second == first))
      return concat(pair.fused ? "fused: " : "separate: ", pair.reason);
  }
  return "";
}

}  // namespace millrace
