// Fused attentions on the CPU, from program text to results: compared with the expected values, which are computed from
// the definition, or by the reference where it can.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>

#include "base/long_run.h"
#include "base/sanitized.h"
#include "candidates/enumerate.h"
#include "candidates/row_partitions.h"
#include "codegen/lower.h"
#include "codegen/trials_of_programs.h"
#include "device/cpu/module.h"
#include "fusion/fusion_text.h"
#include "fusion/predicates.h"
#include "fusion/row_statistics.h"
#include "ir/row_faults.h"
#include "measure/trial.h"

namespace millrace {
namespace {

class CpuAttentions : public ::testing::Test {
 protected:
  struct Attentions {
    std::string name;
    TrainingGraph training;
    Candidates candidates;  // of attentions only
  };
  struct Tried {
    const Attentions* attentions = nullptr;
    Partition partition;
    Candidate candidate;
    std::string kernel;
  };

  static Attentions attentions_of(const std::string& text, int threads, size_t passes) {
    Attentions made;
    made.name = text;
    Recomputed fused = add_row_statistics(save_predicates(training_of(text), false));
    EnumerateOptions options;
    options.target = cpu_target();
    options.threads = threads;
    Result<Candidates> found = find_partitions(fused.training, fused.fused, options);
    EXPECT_TRUE(found) << to_string(found.error());
    if (!found) return made;
    made.training = std::move(fused.training);
    made.candidates = std::move(*found);
    std::erase_if(made.candidates.partitions,
                  [](const PartitionCandidates& each) { return each.partition.kind != PartitionKind::attention; });
    EXPECT_EQ(made.candidates.partitions.size(), passes) << text;
    for (PartitionCandidates& each : made.candidates.partitions) {
      find_configs(made.training.graph, made.candidates.domains, options, each);
      EXPECT_FALSE(each.candidates.empty())
          << each.partition.name << ": " << (each.rejected.empty() ? "" : each.rejected[0].reason) << "\n"
          << text;
    }
    return made;
  }

  // Draws this many candidates of each pass.
  void take(const std::string& text, size_t count, int threads = 2, size_t passes = 2) {
    made_.push_back(std::make_unique<Attentions>(attentions_of(text, threads, passes)));
    const Attentions& made = *made_.back();
    for (const PartitionCandidates& each : made.candidates.partitions) {
      for (size_t k = 0; k < count && !each.candidates.empty(); ++k)
        add(made, each.partition, each.candidates[random_() % each.candidates.size()]);
    }
  }

  // The same of an attention with computed rows, without the one that reads these rows. Whether it fits a choice point
  // does not matter here.
  void take_rows(const NamedAttention& attention, const AttentionSizes& sizes, const std::string& type, size_t count,
                 int threads = 2) {
    const std::string text = text_with(attention.program, sizes, type);
    take_rows(concat(attention.name, "\n", text), training_of(text), count, threads);
    EXPECT_EQ(made_.back()->candidates.partitions.size(), attention.program.without_gradient.empty() ? 2U : 1U) << text;
  }

  void take_rows(const std::string& name, const TrainingGraph& training, size_t count, int threads = 2) {
    made_.push_back(std::make_unique<Attentions>());
    Attentions& made = *made_.back();
    made.name = name;
    Recomputed fused = add_row_statistics(save_predicates(training, false));
    EnumerateOptions options;
    options.target = cpu_target();
    options.threads = threads;
    Result<Candidates> found = find_partitions(fused.training, fused.fused, options);
    ASSERT_TRUE(found) << to_string(found.error());
    made.candidates = std::move(*found);
    made.candidates.partitions = rows_of(fused);
    made.training = std::move(fused.training);
    for (PartitionCandidates& each : made.candidates.partitions) {
      find_configs(made.training.graph, made.candidates.domains, options, each);
      ASSERT_FALSE(each.candidates.empty()) << each.partition.name;
      for (size_t k = 0; k < count; ++k) add(made, each.partition, each.candidates[random_() % each.candidates.size()]);
    }
  }

  void add(const Attentions& made, const Partition& partition, const Candidate& candidate) {
    const std::vector<Layout> layouts = layouts_of(made.candidates.domains, partition, candidate);
    tried_.push_back(
        {&made, partition, candidate, lower(made.training.graph, partition, layouts, candidate.config).kernel});
  }

  // Compiles and runs all that was drawn.
  void run(const char* outcome = "measured") {
    const Result<KernelCache> cache = kernel_cache_of_tests();
    ASSERT_TRUE(cache) << to_string(cache.error());
    std::vector<KernelSource> sources;
    for (const Tried& tried : tried_) sources.push_back({tried.kernel});
    const std::vector<Result<CompiledKernel>> compiled = cache->get(sources, 2);
    for (size_t k = 0; k < tried_.size(); ++k) {
      const Tried& tried = tried_[k];
      const Partition& partition = tried.partition;
      const std::vector<TensorDomain>& domains = tried.attentions->candidates.domains;
      SCOPED_TRACE(
          concat(tried.attentions->name, partition.name, ": ", print_candidate(domains, partition, tried.candidate)));
      ASSERT_TRUE(compiled[k]) << to_string(compiled[k].error()) << tried.kernel;
      Result<KernelModule> module = KernelModule::load(compiled[k]->path, compiled[k]->sha256);
      ASSERT_TRUE(module) << to_string(module.error());
      const Result<void*> function = module->function(compiled[k]->name);
      ASSERT_TRUE(function) << to_string(function.error());
      TrialSettings settings;
      settings.seconds = 0;
      Trials trials(tried.attentions->training.graph, domains);
      const MeasurementRow row = trials.run(partition, tried.candidate, *function, settings);
      EXPECT_EQ(kOutcomeNames.at(static_cast<size_t>(row.outcome)), outcome) << row.detail;
    }
  }

  std::vector<std::unique_ptr<Attentions>> made_;
  std::vector<Tried> tried_;
  std::mt19937_64 random_{20261118};
};

TEST_F(CpuAttentions, AreRightInEveryType) {
  for (const char* const type : {"float32", "bfloat16", "float16"}) take(text_with({}, {24, 40, 16, 32}, type), 2);
  run();
}

// Every attention that the recognizer finds, in tiles that are not whole.
TEST_F(CpuAttentions, WithFormulasMasksAndWindows) {
  const std::array<const char*, 3> types = {"float32", "bfloat16", "float16"};
  const std::vector<NamedAttention> family = attention_family();
  for (size_t k = 0; k < family.size(); k += is_long_run() ? 1 : 2) {
    // Packed sequences have as many keys as queries.
    const int keys = family[k].program.keys == 5 ? 75 : 91;
    take(text_with(family[k].program, {75, keys, 16, 24}, types[k % types.size()]), is_long_run() ? 4 : 1);
  }
  run();
}

TEST_F(CpuAttentions, GroupedHeads) {
  for (const char* const q : {"bhgjp", "bghjp"}) {
    AttentionProgram program;
    program.q = q;
    program.scores = q == std::string("bhgjp") ? "bhgjk" : "bghjk";
    program.o = q == std::string("bhgjp") ? "bhgjw" : "bghjw";
    program.weights = "dropout(softmax(causal_mask(s)), p=0.25)";
    take(text_with(program, {65, 65, 8, 24}, "float32"), 1);
  }
  run();
}

TEST_F(CpuAttentions, OfSomeGradientsOrNone) {
  const std::array<const char*, 3> types = {"float32", "bfloat16", "float16"};
  size_t count = 0;
  for (const NamedAttention& each : attentions_of_some_gradients())
    take(text_with(each.program, {75, 75, 16, 24}, types[count++ % types.size()]), 1);
  AttentionProgram program = attentions_of_some_gradients().front().program;
  program.q = "jp";
  program.k = "kp";
  program.v = "kw";
  program.scores = "jk";
  program.o = "jw";
  for (const char* const without : {"kv", "q"}) {  // several threads share a head
    program.without_gradient = without;
    take(text_with(program, {65, 300, 8, 24}, "float32"), 2, 3);
  }
  for (const NamedAttention& each : attentions_without_gradients())
    take(text_with(each.program, {75, 75, 16, 24}, "float32"), 1, 2, 1);
  run();
}

// With more threads than heads, several share the keys of one.
TEST_F(CpuAttentions, OfOneHeadByManyThreads) {
  AttentionProgram program;
  program.q = "jp";
  program.k = "kp";
  program.v = "kw";
  program.scores = "jk";
  program.o = "jw";
  take(text_with(program, {129, 700, 8, 24}, "float32"), 2, 3);
  program.weights = "softmax(causal_mask(s))";
  take(text_with(program, {700, 700, 8, 24}, "bfloat16"), 1, 3);
  run();
}

TEST_F(CpuAttentions, OfAnySize) {
  const std::vector<int> lengths = {1, 7, 63, 65, 129};
  const std::vector<int> columns = {1, 2, 3, 5, 8, 40, 64, 72, 80, 96, 128, 256};
  const std::array<const char*, 3> types = {"float32", "bfloat16", "float16"};
  const std::vector<NamedAttention> family = attention_family();
  const auto one_of = [&](const auto& list) { return list[random_() % std::size(list)]; };
  for (size_t k = 0; k < (kSanitized ? 2 : is_long_run() ? 60 : 3); ++k) {
    AttentionSizes sizes = {one_of(lengths), one_of(lengths), one_of(columns), one_of(columns)};
    const NamedAttention one = random_() % 2 == 0 ? NamedAttention() : one_of(family);
    // In a window, more queries than keys would leave some without a key: their softmax is NaN.
    const bool square = one.program.keys == 5 || one.name.find("window") != std::string::npos;
    if (square) sizes[1] = sizes[0];
    // One key with one value has neither rows nor columns: such an attention runs as separate kernels.
    if (sizes[1] == 1 && sizes[3] == 1) sizes[3] = 2;
    take(text_with(one.program, sizes, one_of(types)), 1);
  }
  run();
}

TEST_F(CpuAttentions, WithComputedRows) {
  const std::array<const char*, 3> types = {"float32", "bfloat16", "float16"};
  size_t count = 0;
  for (const NamedAttention& each : row_family()) {
    const size_t candidates = is_long_run() ? 4 : count % 2 == 0 ? 1 : 0;
    take_rows(each, {75, 75, 16, 24}, types[count++ % types.size()], candidates);
  }
  run();
}

TEST_F(CpuAttentions, WithComputedRowsOfAnySize) {
  const std::vector<int> lengths = {1, 7, 63, 65, 129};
  const std::vector<int> columns = {4, 8, 12, 20, 40, 64, 72, 96, 128, 256};
  const std::array<const char*, 3> types = {"float32", "bfloat16", "float16"};
  const std::vector<NamedAttention> family = row_family();
  const auto one_of = [&](const auto& list) { return list[random_() % std::size(list)]; };
  for (size_t k = 0; k < (kSanitized ? 2 : is_long_run() ? 40 : 3); ++k) {
    const NamedAttention one = one_of(family);
    const int length = std::max(one_of(lengths), fewest_rows(one));
    take_rows(one, {length, length, one_of(columns), one_of(columns)}, one_of(types), 1);
  }
  run();
}

TEST_F(CpuAttentions, WithRotaryEmbeddingsOfLlama) {
  for (const char* const sizes : {"tiny", "odd"}) {
    take_rows(concat("llama_block ", sizes), training_of_model("llama_block", {sizes}), 1);
    EXPECT_EQ(made_.back()->candidates.partitions.size(), 2U);
  }
  run();
}

// Several threads share the keys of a head.
TEST_F(CpuAttentions, WithComputedRowsOfOneHead) {
  NamedAttention one = row_family().front();
  one.program.q = "jp";
  one.program.k = "kp";
  one.program.v = "kw";
  one.program.scores = "jk";
  one.program.o = "jw";
  take_rows(one, {700, 700, 8, 24}, "float32", 1, 3);
  run();
}

// Each fault alone makes the results wrong: in what is read, and in what is stored. All in a long run.
TEST_F(CpuAttentions, WrongRowsAreDetected) {
  const std::vector<RowFault> faults = row_faults();
  take_rows(row_family().front(), {75, 75, 16, 24}, "bfloat16", 0);
  const Attentions& made = *made_.back();
  size_t number = 0;
  for (const PartitionCandidates& each : made.candidates.partitions) {
    const Attention& attention = each.partition.attention;
    for (size_t operand = 0; operand < Attention::kOperands; ++operand) {
      if (attention.rows[operand].empty()) continue;
      for (const RowFault& fault : faults) {
        Partition other = each.partition;
        fault(other.attention.rows[operand]);
        if (other.attention.rows[operand] == attention.rows[operand]) continue;
        if (!is_long_run() && number++ % 4 != 0) continue;
        add(made, other, each.candidates.front());
      }
    }
  }
  EXPECT_GE(tried_.size(), is_long_run() ? 24U : 6U);
  run("wrong");
}

// A kernel that computes something else does not pass.
TEST_F(CpuAttentions, AWrongKernelIsDetected) {
  take(text_with({}, {24, 40, 16, 32}, "float32"), 0);
  const Attentions& made = *made_.back();
  for (const PartitionCandidates& each : made.candidates.partitions) {
    Partition other = each.partition;
    other.attention.scales.clear();
    add(made, other, each.candidates.front());
  }
  run("wrong");
}

// A candidate's text is read back, and is one of the partition's.
TEST_F(CpuAttentions, AreWrittenAndRead) {
  take(text_with({}, {24, 40, 16, 32}, "float32"), 0);
  const Attentions& made = *made_.back();
  for (const PartitionCandidates& each : made.candidates.partitions) {
    for (const Candidate& candidate : {each.candidates.front(), each.candidates.back()}) {
      const std::string text = print_candidate(made.candidates.domains, each.partition, candidate);
      const std::optional<Candidate> read = parse_candidate(made.candidates.domains, each.partition, text);
      ASSERT_TRUE(read) << text;
      EXPECT_EQ(print_candidate(made.candidates.domains, each.partition, *read), text);
      EXPECT_TRUE(is_candidate(made.training.graph, made.candidates.domains, each.partition, *read)) << text;
    }
  }
}

TEST_F(CpuAttentions, InFloat64AreLeftToOtherKernels) {
  Attentions made;
  Recomputed fused =
      add_row_statistics(save_predicates(training_of(text_with({}, {24, 40, 16, 32}, "float64")), false));
  EnumerateOptions options;
  options.target = cpu_target();
  Result<Candidates> found = find_partitions(fused.training, fused.fused, options);
  ASSERT_TRUE(found) << to_string(found.error());
  for (PartitionCandidates& each : found->partitions) {
    if (each.partition.kind != PartitionKind::attention) continue;
    find_configs(fused.training.graph, found->domains, options, each);
    EXPECT_TRUE(each.candidates.empty());
    ASSERT_FALSE(each.rejected.empty());
    EXPECT_EQ(each.rejected.front().reason,
              "an attention in float64: the logarithms of its rows' sums are saved in float32");
  }
}

}  // namespace
}  // namespace millrace
