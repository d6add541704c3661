// Fused attentions on an emulated GPU: every offered orientation, compared with the expected values.
#include <gtest/gtest.h>

#include <set>

#include "base/long_run.h"
#include "measure/attention_trials.h"

namespace millrace {
namespace {

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
    try_one(other, each.candidates.front(), "wrong");
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
