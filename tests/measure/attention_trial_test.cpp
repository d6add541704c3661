// Fused attentions on an emulated GPU: every offered orientation, compared with the expected values.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "base/long_run.h"
#include "base/sanitized.h"
#include "base/scratch.h"
#include "candidates/enumerate.h"
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
namespace {

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
    gpu_ = emulated::make_gpu();
    compiler_ = emulated::make_compiler();
  }

  // Some candidates of both passes, spread over all. Under a sanitizer the first and the last.
  void try_some(size_t most) {
    const size_t count = kSanitized ? 2 : most;
    Result<GpuTrials> trials = GpuTrials::make(*gpu_, *compiler_, path("cache"), training_.graph, candidates_.domains);
    ASSERT_TRUE(trials) << to_string(trials.error());
    const GpuKernelCache cache(path("cache"), *compiler_, gpu_prelude(), "sm_90");
    for (const PartitionCandidates& each : candidates_.partitions) {
      for (size_t k = 0; k < count; ++k) {
        const Candidate& candidate = each.candidates[k * (each.candidates.size() - 1) / std::max<size_t>(count - 1, 1)];
        const std::vector<Layout> layouts = layouts_of(candidates_.domains, each.partition, candidate);
        const Launch launch = lower(training_.graph, each.partition, layouts, candidate.config);
        const Result<CompiledCubin> cubin = cache.get({launch}, 1).front();
        ASSERT_TRUE(cubin) << to_string(cubin.error());
        const Result<MeasurementRow> row = trials->run(each.partition, candidate, cubin->bytes, cubin->name, {});
        ASSERT_TRUE(row) << to_string(row.error());
        EXPECT_EQ(kOutcomeNames.at(static_cast<size_t>(row->outcome)), "measured")
            << each.partition.name << ": " << print_candidate(candidates_.domains, each.partition, candidate) << ": "
            << row->detail;
      }
    }
  }

  TrainingGraph training_;
  Candidates candidates_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<GpuCompiler> compiler_;
};

TEST_F(AttentionTrials, AreRight) {
  take({});
  try_some(is_long_run() ? 4 : 2);
}

// There is a candidate without conversions, although the mask is regenerated: it is tried whatever the budget.
TEST_F(AttentionTrials, TakeTensorsAsTheyAreWritten) {
  take({});
  for (const PartitionCandidates& each : candidates_.partitions) {
    EXPECT_TRUE(std::any_of(each.candidates.begin(), each.candidates.end(), [&](const Candidate& candidate) {
      return has_written_layouts(candidates_.domains, each.partition, candidate);
    })) << each.partition.name;
  }
}

TEST_F(AttentionTrials, CausalInBfloat16) {
  AttentionProgram program;
  program.weights = "softmax(causal_mask(s))";
  program.type = "bfloat16";
  take(program);
  try_some(is_long_run() ? 3 : 1);
}

// Every one in a long run, otherwise every eighth.
TEST_F(AttentionTrials, WithFormulasAndWindows) {
  const std::vector<NamedAttention> family = attention_family();
  for (size_t k = 0; k < family.size(); k += is_long_run() ? 1 : 8) {
    SCOPED_TRACE(family[k].name);
    AttentionProgram program = family[k].program;
    if (program.keys == 5) program.keys = 24;  // as many as queries
    take(program);
    try_some(is_long_run() ? 3 : 1);
  }
}

// All in a long run, otherwise one with a gradient of the values only.
TEST_F(AttentionTrials, WithFormulasAndSomeGradients) {
  const std::vector<NamedAttention> some = attentions_of_some_gradients();
  for (size_t k = 0; k < some.size(); ++k) {
    if (!is_long_run() && k != 3) continue;
    SCOPED_TRACE(some[k].name);
    take(some[k].program);
    try_some(is_long_run() ? 3 : 1);
  }
  for (const NamedAttention& each : attentions_without_gradients()) {
    SCOPED_TRACE(each.name);
    take(each.program, kUsual, 1);
    try_some(1);
    if (!is_long_run()) break;
  }
}

// Registers spill, but results are right.
TEST_F(AttentionTrials, OfWideHeads) {
  AttentionProgram program;
  program.weights = "softmax(causal_mask(s))";
  take(program, {24, 40, 256, 256});
  try_some(1);
}

// Lengths that are no multiples of anything, and columns that are multiples of 8.
TEST_F(AttentionTrials, WithFormulasAndOddSizes) {
  std::vector<Sizes> all = {{65, 7, 40, 8}, {1, 129, 8, 72}, {63, 65, 24, 16}};
  if (!is_long_run()) all.resize(1);
  const std::vector<NamedAttention> family = attention_family();
  for (const Sizes& sizes : all) {
    for (const size_t k : is_long_run() ? std::vector<size_t>{0, 3, 5, 6} : std::vector<size_t>{0}) {
      SCOPED_TRACE(family[k].name);
      take(family[k].program, sizes);
      try_some(1);
    }
  }
}

// The kernel is compared with the graph: with another scale it is wrong.
TEST_F(AttentionTrials, AWrongKernelIsDetected) {
  take({});
  for (PartitionCandidates& each : candidates_.partitions) {
    Partition other = each.partition;
    other.attention.scales.clear();
    Result<GpuTrials> trials = GpuTrials::make(*gpu_, *compiler_, path("cache"), training_.graph, candidates_.domains);
    ASSERT_TRUE(trials) << to_string(trials.error());
    const GpuKernelCache cache(path("cache"), *compiler_, gpu_prelude(), "sm_90");
    const Candidate& candidate = each.candidates.front();
    const std::vector<Layout> layouts = layouts_of(candidates_.domains, other, candidate);
    const Launch launch = lower(training_.graph, other, layouts, candidate.config);
    const Result<CompiledCubin> cubin = cache.get({launch}, 1).front();
    ASSERT_TRUE(cubin) << to_string(cubin.error());
    const Result<MeasurementRow> row = trials->run(other, candidate, cubin->bytes, cubin->name, {});
    ASSERT_TRUE(row) << to_string(row.error());
    EXPECT_EQ(kOutcomeNames.at(static_cast<size_t>(row->outcome)), "wrong") << other.name;
  }
}

// A library's attentions: no kernel is compiled.
class CudnnTrials : public AttentionTrials {
 protected:
  void take_causal(const std::string& q, const std::string& scores, const std::string& o) {
    AttentionProgram program;
    program.weights = "softmax(causal_mask(s))";
    program.type = "bfloat16";
    program.q = q;
    program.scores = scores;
    program.o = o;
    take(program);
  }

  // Outcomes and details of the library's candidates in the first and the last layouts, both passes.
  std::vector<MeasurementRow> rows() {
    std::vector<MeasurementRow> made;
    Result<GpuTrials> trials = GpuTrials::make(*gpu_, *compiler_, path("cache"), training_.graph, candidates_.domains);
    EXPECT_TRUE(trials) << to_string(trials.error());
    for (const PartitionCandidates& each : candidates_.partitions) {
      std::vector<Candidate> by_library;
      for (const Candidate& candidate : each.candidates) {
        if (std::holds_alternative<CudnnConfig>(candidate.config)) by_library.push_back(candidate);
      }
      EXPECT_FALSE(by_library.empty()) << each.partition.name;
      for (const Candidate* const candidate : {&by_library.front(), &by_library.back()}) {
        const Result<MeasurementRow> row = trials->run(each.partition, *candidate, "", "", {});
        EXPECT_TRUE(row) << to_string(row.error());
        if (row) made.push_back(*row);
      }
    }
    return made;
  }

  void expect(const char* outcome, const char* detail) {
    for (const MeasurementRow& row : rows()) {
      EXPECT_EQ(kOutcomeNames.at(static_cast<size_t>(row.outcome)), outcome) << row.detail;
      EXPECT_NE(row.detail.find(detail), std::string::npos) << row.detail;
    }
  }
};

TEST_F(CudnnTrials, AreRight) {
  take_causal("bhjp", "bhjk", "bhjw");
  expect("measured", "");
}

TEST_F(CudnnTrials, GroupedHeadsAreRight) {
  take_causal("bhgjp", "bhgjk", "bhgjw");
  expect("measured", "");
}

TEST_F(CudnnTrials, RefusedByTheLibrary) {
  set_variable("MILLRACE_EMULATED_CUDNN_REFUSES", "1");
  take_causal("bhjp", "bhjk", "bhjw");
  expect("failed", "cuDNN cannot compute this attention");
}

TEST_F(CudnnTrials, WrongResultsAreDetected) {
  set_variable("MILLRACE_EMULATED_CUDNN_WRONG", "1");
  take_causal("bhjp", "bhjk", "bhjw");
  expect("wrong", "expected");
}

TEST_F(CudnnTrials, OtherBitsEveryTimeAreDetected) {
  set_variable("MILLRACE_EMULATED_CUDNN_UNSTABLE", "1");
  take_causal("bhjp", "bhjk", "bhjw");
  expect("wrong", "other bits in each run");
}

}  // namespace
}  // namespace millrace
