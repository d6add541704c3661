// Trials of attentions on the emulated GPU. Used by attention_trial_test.cpp and attention_rows_trial_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <array>

#include "base/sanitized.h"
#include "base/scratch.h"
#include "candidates/enumerate.h"
#include "candidates/row_partitions.h"
#include "codegen/cuda/generate.h"
#include "codegen/lower.h"
#include "device/emulated/emulated_gpu.h"
#include "device/gpu_kernel_cache.h"
#include "fusion/fusion_text.h"
#include "fusion/predicates.h"
#include "fusion/row_statistics.h"
#include "ir/attention_family.h"
#include "measure/gpu/gpu_trial.h"

namespace millrace {

class AttentionTrials : public ScratchTest {
 protected:
  // Queries, keys, inner columns and values.
  using Sizes = std::array<int, 4>;
  static constexpr Sizes kUsual = {24, 40, 16, 32};
  void take(const AttentionProgram& program, const Sizes& sizes = kUsual, size_t passes = 2) {
    std::string text = program.text();
    const std::array<std::string, 4> given = {"J = 5", "K = 7", "P = 4", "W = 6"};
    for (size_t k = 0; k < given.size(); ++k) {
      const size_t at = text.find(given[k]);
      if (at != std::string::npos) text.replace(at, given[k].size(), concat(given[k].substr(0, 4), sizes[k]));
    }
    Recomputed made = add_row_statistics(save_predicates(training_of(text), true));
    EnumerateOptions options;
    options.target = gpu_target();
    options.target.gpu->cudnn = true;
    options.libraries = {GemmLibrary::cublaslt};
    Result<Candidates> found = find_partitions(made.training, made.fused, options);
    ASSERT_TRUE(found) << to_string(found.error());
    training_ = std::move(made.training);
    candidates_ = std::move(*found);
    std::erase_if(candidates_.partitions,
                  [](const PartitionCandidates& each) { return each.partition.kind != PartitionKind::attention; });
    ASSERT_EQ(candidates_.partitions.size(), passes);
    for (PartitionCandidates& each : candidates_.partitions) {
      find_configs(training_.graph, candidates_.domains, options, each);
      ASSERT_FALSE(each.candidates.empty()) << each.partition.name;
    }
    open();
  }

  // The same of an attention with computed rows, without the one that reads these rows. Whether it fits a choice point
  // does not matter here.
  void take_rows(const TrainingGraph& training) {
    Recomputed made = add_row_statistics(save_predicates(training, true));
    EnumerateOptions options;
    options.target = gpu_target();
    Result<Candidates> found = find_partitions(made.training, made.fused, options);
    ASSERT_TRUE(found) << to_string(found.error());
    candidates_ = std::move(*found);
    candidates_.partitions = rows_of(made);
    training_ = std::move(made.training);
    for (PartitionCandidates& each : candidates_.partitions) {
      find_configs(training_.graph, candidates_.domains, options, each);
      ASSERT_FALSE(each.candidates.empty()) << each.partition.name;
    }
    open();
  }

  void open() {
    gpu_ = emulated::make_gpu();
    compiler_ = emulated::make_compiler();
  }

  // Some candidates of both passes, spread over all. Under a sanitizer it has the first and the last one only.
  void try_some(size_t most) {
    const size_t count = kSanitized ? 2 : most;
    for (const PartitionCandidates& each : candidates_.partitions) {
      for (size_t k = 0; k < count; ++k)
        try_one(each.partition, each.candidates[k * (each.candidates.size() - 1) / std::max<size_t>(count - 1, 1)]);
    }
  }

  // Compares its results with the expected values.
  void try_one(const Partition& partition, const Candidate& candidate, const char* outcome = "measured") {
    Result<GpuTrials> trials = GpuTrials::make(*gpu_, *compiler_, path("cache"), training_.graph, candidates_.domains);
    ASSERT_TRUE(trials) << to_string(trials.error());
    const GpuKernelCache cache(path("cache"), *compiler_, gpu_prelude(), "sm_90");
    const std::vector<Layout> layouts = layouts_of(candidates_.domains, partition, candidate);
    Launch launch = lower(training_.graph, partition, layouts, candidate.config);
    alter(launch.kernel);
    const Result<CompiledCubin> cubin = cache.get({launch}, 1).front();
    ASSERT_TRUE(cubin) << to_string(cubin.error());
    const Result<MeasurementRow> row = trials->run(partition, candidate, cubin->bytes, cubin->name, {});
    ASSERT_TRUE(row) << to_string(row.error());
    EXPECT_EQ(kOutcomeNames.at(static_cast<size_t>(row->outcome)), outcome)
        << partition.name << ": " << print_candidate(candidates_.domains, partition, candidate) << ": " << row->detail;
  }

  // Plants a fault.
  void alter(std::string& kernel) const {
    const size_t at = kernel.find(altered_.first);
    ASSERT_NE(at, std::string::npos) << altered_.first;
    kernel.replace(at, altered_.first.size(), altered_.second);
  }

  std::pair<std::string, std::string> altered_;  // a text in kernels, and what replaces its first occurrence
  TrainingGraph training_;
  Candidates candidates_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<GpuCompiler> compiler_;
};

}  // namespace millrace
