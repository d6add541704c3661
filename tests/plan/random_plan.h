// Plans without measuring: random or most promising alternatives, candidates and conversions, with made-up times.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autodiff/training_graph.h"
#include "base/gemm_library.h"
#include "candidates/candidates.h"
#include "device/gpu.h"
#include "fusion/fused_graph.h"
#include "measure/measurements.h"
#include "plan/plan.h"
#include "select/selection.h"

namespace millrace {

struct MadePlan {
  TrainingGraph training;
  Candidates candidates;
  Measurements measurements;
  Selection selection;
  StepPlan plan;
};

enum class MadeConversions {
  direct,
  chained,  // through a third layout, where the tensor has one
};

struct PlanChoice {
  std::optional<uint64_t> seed;  // of all choices; none: the default alternatives and the most promising candidates
  std::vector<std::string> sizes;
  std::string dtype;
  std::vector<std::pair<std::string, std::string>> layouts;
  MadeConversions conversions = MadeConversions::direct;
  std::vector<GemmLibrary> libraries;  // of a CPU; none: OpenBLAS and BLIS, those that are there
  size_t most = 200;                   // candidates of a partition to choose from
  Gpu* gpu = nullptr;                  // not null: a plan for it
  // How the text of the candidates to choose from must end, by the beginning of a partition's name.
  std::map<std::string, std::string> candidates;
};

// Fails the test and returns an empty plan if something goes wrong.
MadePlan make_plan(const std::string& text, const PlanChoice& choice);

}  // namespace millrace
