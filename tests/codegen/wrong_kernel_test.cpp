// The check of results can fail: it detects kernels that were changed to be wrong.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "codegen/lower.h"
#include "codegen/trials_of_programs.h"
#include "device/cpu/module.h"
#include "measure/trial.h"

namespace millrace {
namespace {

const char* const kProgram = R"(
A = 6
B = 37


def layer(x: float32[A, B], y: float32[A, B], bias: float32[B]):
    return dropout(softmax(x), p=0.25), relu(x + bias[None, :]) + y
)";

class WrongKernelTest : public testing::Test {
 protected:
  // The fused partition that has an operator of this kind, its first candidate of one thread, and its kernel.
  void take(OperatorKind kind) {
    program_ = tried_program("layer", kProgram, {}, "float32");
    const Graph& graph = program_.training.graph;
    for (const PartitionCandidates& entry : program_.candidates.partitions) {
      const bool has = std::any_of(entry.partition.members.begin(), entry.partition.members.end(),
                                   [&](OperatorId op) { return graph.operators[op.at()].kind == kind; });
      if (!has || entry.partition.members.size() < 2) continue;
      for (const Candidate& candidate : entry.candidates) {
        const auto& config = std::get<KernelConfig>(candidate.config);
        const std::vector<Layout> layouts = layouts_of(program_.candidates.domains, entry.partition, candidate);
        const bool words = std::all_of(layouts.begin(), layouts.end(),
                                       [](const Layout& layout) { return layout.storage == MaskStorage::words; });
        if (config.threads != 1 || config.block != kNoIndex || !words) continue;
        partition_ = entry.partition;
        candidate_ = candidate;
        kernel_ = lower(graph, partition_, layouts, candidate.config).kernel;
        return;
      }
    }
    FAIL() << "no such partition";
  }

  std::string altered(const std::string& from, const std::string& to) const {
    std::string text = kernel_;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " is not in\n" << text;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    return text;
  }

  std::string beginning_with(const std::string& statement) const {
    return altered("(const mr::Arguments* args) {\n", concat("(const mr::Arguments* args) {\n", statement, "\n"));
  }

  MeasurementRow outcome_of(const std::string& text) {
    MeasurementRow row;
    const Result<KernelCache> cache = kernel_cache_of_tests();
    EXPECT_TRUE(cache);
    const auto compiled = cache->get({{text}}, 1);
    EXPECT_TRUE(compiled[0]) << to_string(compiled[0].error());
    if (!compiled[0]) return row;
    const Result<KernelModule> module = KernelModule::load(compiled[0]->path, compiled[0]->sha256);
    EXPECT_TRUE(module);
    const Result<void*> function = module->function(compiled[0]->name);
    EXPECT_TRUE(function);
    Trials trials(program_.training.graph, program_.candidates.domains);
    TrialSettings settings;
    settings.seconds = 0;
    return trials.run(partition_, candidate_, *function, settings);
  }

  void expect_wrong(const std::string& text, const std::string& why) {
    const MeasurementRow row = outcome_of(text);
    EXPECT_EQ(row.outcome, Outcome::wrong) << why;
    EXPECT_NE(row.detail.find(", expected "), std::string::npos) << row.detail;
    EXPECT_EQ(row.seconds, 0) << "what is wrong is not timed";
  }

  TriedProgram program_;
  Partition partition_;
  Candidate candidate_;
  std::string kernel_;
};

TEST_F(WrongKernelTest, AnotherOperationIsDetected) {
  take(OperatorKind::relu);
  EXPECT_EQ(outcome_of(kernel_).outcome, Outcome::measured);
  const size_t plus = kernel_.find(" + x");
  ASSERT_NE(plus, std::string::npos) << kernel_;
  expect_wrong(altered(" + x", " - x"), "a difference in place of a sum");
}

TEST_F(WrongKernelTest, AnElementLeftOutIsDetected) {
  take(OperatorKind::relu);
  // Leaves out the last row of the last thread.
  const size_t at = kernel_.find("L * (thread + 1) / 1;");
  ASSERT_NE(at, std::string::npos) << kernel_;
  expect_wrong(altered("L * (thread + 1) / 1;", "L * (thread + 1) / 1 - 1;"), "a row is not written");
}

TEST_F(WrongKernelTest, ANotANumberIsDetected) {
  take(OperatorKind::softmax);
  EXPECT_EQ(outcome_of(kernel_).outcome, Outcome::measured);
  const std::string text = altered("mr::exp(", "__builtin_nanf(\"\") * mr::exp(");
  const MeasurementRow row = outcome_of(text);
  EXPECT_EQ(row.outcome, Outcome::wrong);
  EXPECT_NE(row.detail.find("nan"), std::string::npos) << row.detail;
}

TEST_F(WrongKernelTest, AnErrorOfAFewUnitsIsDetected) {
  take(OperatorKind::relu);
  expect_wrong(altered(" + x", " * 1.000002f + x"), "thirty units in the last place");
}

TEST_F(WrongKernelTest, AnotherMaskIsDetected) {
  take(OperatorKind::dropout);
  // The kernel takes the subsequence: the next one gives another mask.
  expect_wrong(altered("args->subsequences[0]", "args->subsequences[0] + 1"), "the mask of another dropout");
}

TEST_F(WrongKernelTest, AWriteOutsideOfTheOutputsIsDetected) {
  take(OperatorKind::relu);
  const size_t last = tensors_of(partition_).size() - 1;
  const std::string output = concat("static_cast<char*>(args->tensors[", last, "])");
  const Layout layout = layouts_of(program_.candidates.domains, partition_, candidate_)[last];
  const std::string bytes = concat(stored_bytes(program_.training.graph, tensors_of(partition_)[last], layout));
  EXPECT_EQ(outcome_of(beginning_with(concat(output, "[", bytes, " - 1] = 1;"))).outcome, Outcome::measured);
  for (const std::string& at : {bytes, std::string("-1"), bytes + " + 1000"}) {
    const MeasurementRow row = outcome_of(beginning_with(concat(output, "[", at, "] = 1;")));
    EXPECT_EQ(row.outcome, Outcome::wrong) << at;
    EXPECT_EQ(row.detail, "it writes before or after its tensors");
  }
}

// Changes the last bit of an input: the results stay within the tolerance.
TEST_F(WrongKernelTest, AChangedInputIsDetected) {
  take(OperatorKind::relu);
  for (size_t input = 0; input < partition_.reads.size(); ++input) {
    const MeasurementRow row =
        outcome_of(beginning_with(concat("static_cast<char*>(args->tensors[", input, "])[0] ^= 1;")));
    EXPECT_EQ(row.outcome, Outcome::wrong);
    EXPECT_EQ(row.detail, "it changes its input " + program_.training.graph.tensor(partition_.reads[input]).name);
  }
}

TEST_F(WrongKernelTest, AKernelThatStopsComputingIsDetected) {
  take(OperatorKind::relu);
  // The third call is one of the checks with other inputs, the fifth is timed.
  EXPECT_EQ(outcome_of(beginning_with("static int calls = 0; if (++calls > 2) return;")).outcome, Outcome::wrong);
  const MeasurementRow row = outcome_of(beginning_with("static int calls = 0; if (++calls > 4) return;"));
  EXPECT_EQ(row.outcome, Outcome::wrong);
  EXPECT_TRUE(row.detail.starts_with("after the timing: ")) << row.detail;
}

}  // namespace
}  // namespace millrace
