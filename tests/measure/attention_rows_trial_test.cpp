// Fused attentions that compute rows of their operands, on an emulated GPU: compared with the expected values, and
// compiled for the architectures that we support.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "base/long_run.h"
#include "device/gpu_for_tests.h"
#include "ir/row_family.h"
#include "ir/row_faults.h"
#include "measure/attention_trials.h"

namespace millrace {
namespace {

const std::array<const char*, 2> kTypes = {"float16", "bfloat16"};

bool is_mma(const AttentionConfig& config) { return !config.wgmma; }
bool is_wgmma(const AttentionConfig& config) { return config.wgmma; }

class AttentionRowTrials : public AttentionTrials {
 protected:
  void take_one(const NamedAttention& attention, const AttentionSizes& sizes, const std::string& type) {
    const std::string text = text_with(attention.program, sizes, type);
    name_ = concat(attention.name, "\n", text);
    take_rows(training_of(text));
    EXPECT_EQ(candidates_.partitions.size(), attention.program.without_gradient.empty() ? 2U : 1U);
  }

  // One of the candidates that `wanted` accepts.
  template <class Wanted>
  const Candidate& drawn(const PartitionCandidates& from, const Wanted& wanted) {
    std::vector<const Candidate*> all;
    for (const Candidate& candidate : from.candidates) {
      if (wanted(std::get<AttentionConfig>(candidate.config))) all.push_back(&candidate);
    }
    EXPECT_FALSE(all.empty()) << from.partition.name;
    return all.empty() ? from.candidates.front() : *all[random_() % all.size()];
  }

  // Draws this many of each pass.
  template <class Wanted>
  void try_drawn(size_t count, const Wanted& wanted) {
    SCOPED_TRACE(name_);
    for (const PartitionCandidates& each : candidates_.partitions) {
      for (size_t k = 0; k < count; ++k) try_one(each.partition, drawn(each, wanted));
    }
  }

  std::string name_;
  std::mt19937_64 random_{20261119};
};

// Every one in a long run, otherwise every fourth.
TEST_F(AttentionRowTrials, AreRight) {
  const std::vector<NamedAttention> family = row_family();
  for (size_t k = 0; k < family.size(); k += is_long_run() ? 1 : 4) {
    take_one(family[k], {75, 75, 16, 24}, kTypes[k % 2]);
    try_drawn(1, is_mma);
  }
}

// Rows are in shared memory, swizzled.
TEST_F(AttentionRowTrials, WithWgmma) {
  const std::vector<NamedAttention> family = row_family();
  for (size_t k = 1; k < family.size(); k += is_long_run() ? 2 : 8) {
    take_one(family[k], {88, 88, 64, 64}, kTypes[k % 2]);
    try_drawn(1, is_wgmma);
  }
}

// Lengths that are multiples of 8 have candidates with contiguous rows.
TEST_F(AttentionRowTrials, OfAnySizeInAnyLayout) {
  const std::vector<int> lengths = {1, 7, 16, 63, 65, 72, 128, 129};
  const std::vector<int> columns = {8, 16, 24, 40, 64, 72, 96, 128};
  const auto one_of = [&](const auto& list) { return list[random_() % std::size(list)]; };
  const std::vector<NamedAttention> family = row_family();
  for (size_t k = 0; k < (kSanitized ? 1 : is_long_run() ? 12 : 2); ++k) {
    const NamedAttention one = one_of(family);
    const int length = std::max(one_of(lengths), fewest_rows(one));
    take_one(one, {length, length, one_of(columns), one_of(columns)}, one_of(kTypes));
    try_drawn(1, [](const AttentionConfig&) { return true; });
  }
}

TEST_F(AttentionRowTrials, WithFormulas) {
  NamedAttention one = row_family()[1];
  one.program.arguments += ", m: float16[H, J, K]";
  one.program.weights = "dropout(softmax(causal_mask(s + m)), p=0.25)";
  take_one(one, {40, 40, 32, 16}, "float16");
  try_drawn(is_long_run() ? 3 : 1, is_mma);
}

// Each fault alone makes the results wrong: in what is read, and in what is stored. All in a long run.
TEST_F(AttentionRowTrials, WrongRowsAreDetected) {
  take_one(row_family().front(), {40, 40, 16, 16}, "bfloat16");
  size_t number = 0;
  for (const PartitionCandidates& each : candidates_.partitions) {
    const Attention& attention = each.partition.attention;
    for (size_t operand = 0; operand < Attention::kOperands; ++operand) {
      if (attention.rows[operand].empty()) continue;
      for (const RowFault& fault : row_faults()) {
        Partition other = each.partition;
        fault(other.attention.rows[operand]);
        if (other.attention.rows[operand] == attention.rows[operand]) continue;
        if (number++ % 8 != 0 && !is_long_run()) continue;
        SCOPED_TRACE(concat("operand ", operand));
        try_one(other, each.candidates.front(), "wrong");
      }
    }
  }
  EXPECT_GE(number, 24U);
}

// A fault in the text of a kernel, in what only kernels with computed rows have. All in a long run.
TEST_F(AttentionRowTrials, AWrongKernelIsDetected) {
  using Faults = std::vector<std::pair<std::string, std::string>>;
  const auto try_faults = [&](int columns, const Faults& faults) {
    take_one(row_family().front(), {40, 40, columns, columns}, "float16");
    const PartitionCandidates& forward = candidates_.partitions.front();
    const Candidate& candidate = drawn(forward, is_mma);
    for (size_t k = 0; k < faults.size(); k += is_long_run() ? 1 : 4) {
      SCOPED_TRACE(faults[k].first);
      altered_ = faults[k];
      try_one(forward.partition, candidate, "wrong");
    }
  };
  try_faults(16, {{"r0.get(l)", "r0.get(7 - l)"},
                  {"I(row) * m.t1.row", "I(row / 2) * m.t1.row"},
                  {"x1[l * 1 + 0] = ", "x1[7 - l] = "},
                  {"first + n * 8", "first + n * 8 - n"},
                  {"lane_id() / 16 * 16", "lane_id() / 16 * 0"},
                  {"from[2 * n], from[2 * n + 1]", "from[2 * n], from[2 * n]"},
                  {"place.template store<16>(own, 8 + ", "place.template store<16>(own, 0 + "}});
  // Of 16 columns, one vector has both halves of a row, so its number is always 0.
  try_faults(32, {{"I(number) * 8", "I(number) * 0"}});
}

// --- NVRTC ---

// Rows of every form, in every kernel: all in one source, as in a plan.
TEST_F(AttentionRowTrials, CompileForEveryArchitecture) {
  const Result<std::unique_ptr<GpuCompiler>> compiler = gpu_compiler_for_tests();
  if (!compiler) GTEST_SKIP() << "no CUDA compiler: " << to_string(compiler.error());
  std::string source;
  std::string of_hopper;
  size_t count = 0;
  for (const NamedAttention& attention : row_family()) {
    take_one(attention, {96, 96, 64, 64}, kTypes[count % 2]);
    for (const PartitionCandidates& each : candidates_.partitions) {
      for (const bool wgmma : {false, true}) {
        const Candidate& candidate = drawn(each, [&](const AttentionConfig& config) { return config.wgmma == wgmma; });
        const std::vector<Layout> layouts = layouts_of(candidates_.domains, each.partition, candidate);
        (wgmma ? of_hopper : source) += with_kernel_name(
            lower(training_.graph, each.partition, layouts, candidate.config).kernel, concat("kernel_", count++));
      }
    }
  }
  for (const auto& [text, architecture] : {std::pair(concat(source, of_hopper), "sm_90"), std::pair(source, "sm_80")}) {
    const Result<std::string> cubin = (*compiler)->compile(concat(gpu_prelude(), text), architecture);
    ASSERT_TRUE(cubin) << to_string(cubin.error());
    EXPECT_FALSE(cubin->empty());
  }
}

}  // namespace
}  // namespace millrace
