// Trials on the CPU: products that are too large for the reference, and kernels that are slow or wrong.
#include "measure/trial.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "base/sanitized.h"
#include "candidates/adding_program.h"
#include "candidates/enumerate.h"
#include "candidates/partitions.h"
#include "device/cpu/blas_library.h"
#include "device/cpu/kernel_arguments.h"
#include "fusion/fuse.h"
#include "fusion/fusion_text.h"

namespace millrace {
namespace {

// The added tensor is as large as the product, and the factor negative: a tolerance from their difference would
// be smaller than the libraries' differences.
TEST(Trials, LargeProductsThatAddAreComparedWithAPeer) {
  std::string text = kSums;
  text.replace(text.find("B = 6"), 5, "B = 610");
  text.replace(text.find("I = 4"), 5, "I = 100");
  text.replace(text.find("O = 5"), 5, "O = 590");
  text.replace(text.find("-2 *"), 4, "-0.04 *");
  const TrainingGraph training = training_of(text);
  EnumerateOptions options;
  options.most = kSanitized ? 2 : 20;
  if (blas_info(GemmLibrary::openblas).there) options.libraries.push_back(GemmLibrary::openblas);
  if (blas_info(GemmLibrary::blis).there) options.libraries.push_back(GemmLibrary::blis);
  if (options.libraries.empty()) GTEST_SKIP() << "no library here: nothing is added";
  Result<Candidates> found = find_partitions(training, fuse(training), options);
  ASSERT_TRUE(found);
  Trials trials(training.graph, found->domains);
  TrialSettings settings;
  settings.seconds = 0;
  size_t large = 0;
  size_t negative = 0;
  for (PartitionCandidates& each : found->partitions) {
    if (!each.partition.product.adds()) continue;
    find_configs(training.graph, found->domains, options, each);
    large += is_large(each.partition) ? 1U : 0U;
    negative += each.partition.product.scales.empty() ? 0U : 1U;
    if (kSanitized && large > 1 && (each.partition.product.scales.empty() || negative > 1)) continue;  // seconds each
    for (const Candidate& candidate : each.candidates) {
      const MeasurementRow row = trials.run(each.partition, candidate, nullptr, settings);
      EXPECT_EQ(row.outcome, Outcome::measured) << each.partition.name << ": " << row.detail;
    }
  }
  EXPECT_GT(large, 3U);
  EXPECT_GT(negative, 0U);
}

// A part of a tensor has no counterpart at small extents.
TEST(Trials, LargeProductsOfPartsAreComparedWithAPeer) {
  constexpr const char* kText = R"(
B = 302
I = 310
O = 110

def parts(x: float32[2 * B, I], w: float32[I, 3 * O]):
    return np.einsum("bi,io->bo", x[::2], w.reshape(I, 3, O)[:, 1]), x @ w.reshape(I, 3, O).transpose(1, 0, 2)
)";
  const TrainingGraph training = training_of(kText);
  EnumerateOptions options;
  options.most = kSanitized ? 2 : 20;
  if (blas_info(GemmLibrary::openblas).there) options.libraries.push_back(GemmLibrary::openblas);
  if (blas_info(GemmLibrary::blis).there) options.libraries.push_back(GemmLibrary::blis);
  if (options.libraries.empty()) GTEST_SKIP() << "no library here: kernels have tests of their own";
  Result<Candidates> found = find_partitions(training, fuse(training), options);
  ASSERT_TRUE(found);
  Trials trials(training.graph, found->domains);
  TrialSettings settings;
  settings.seconds = 0;
  size_t measured = 0;
  for (PartitionCandidates& each : found->partitions) {
    if (each.partition.kind != PartitionKind::contraction || !is_large(each.partition)) continue;
    find_configs(training.graph, found->domains, options, each);
    for (const Candidate& candidate : each.candidates) {
      if (!std::holds_alternative<GemmConfig>(candidate.config)) continue;
      const MeasurementRow row = trials.run(each.partition, candidate, nullptr, settings);
      EXPECT_EQ(row.outcome, Outcome::measured) << each.partition.name << ": " << row.detail;
      ++measured;
    }
  }
  EXPECT_GT(measured, 0U);
}

constexpr size_t kRows = 4;
constexpr size_t kColumns = 6;
int runs = 0;

// What a conversion from one layout to the other does.
void transpose(const KernelArguments* arguments) {
  const auto* const from = static_cast<const float*>(arguments->tensors[0]);
  auto* const to = static_cast<float*>(arguments->tensors[1]);
  for (size_t k = 0; k < kRows * kColumns; ++k) to[k % kColumns * kRows + k / kColumns] = from[k];
}
void transpose_slowly(const KernelArguments* arguments) {
  ++runs;
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  transpose(arguments);
}
std::set<const void*> sources;
void transpose_and_note(const KernelArguments* arguments) {
  sources.insert(arguments->tensors[0]);
  transpose(arguments);
}
void transpose_once(const KernelArguments* arguments) {
  if (runs++ == 0) transpose(arguments);
}

class KernelTrials : public ::testing::Test {
 protected:
  // The outcome of a kernel in place of a generated conversion.
  MeasurementRow outcome_of(KernelFunction kernel, TrialSettings settings) {
    const Partition partition = conversion_partition(training_.graph, tensor_);
    Trials trials(training_.graph, domains_);
    const PartitionCandidates found = conversions(training_.graph, domains_[tensor_.at()], tensor_, 0, 1, 1);
    runs = 0;
    return trials.run(partition, found.candidates.front(), reinterpret_cast<void*>(kernel), settings);
  }

  const TensorId tensor_{size_t{0}};
  const TrainingGraph training_ = training_of("B = 4\nI = 6\n\ndef f(x: float32[B, I]):\n    return relu(x)\n");
  const std::vector<TensorDomain> domains_ = find_partitions(training_, fuse(training_), EnumerateOptions())->domains;
};

// One run for the check, and one whose result is checked too and whose time says enough.
TEST_F(KernelTrials, ASlowCandidateRunsTwice) {
  const MeasurementRow row = outcome_of(transpose_slowly, {.best_seconds = 1e-3});
  EXPECT_EQ(row.outcome, Outcome::measured) << row.detail;
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(row.samples, 1);
  EXPECT_GE(row.seconds, 3e-3);
}

// The same if tensors come from memory: one of several copies of the tensors is checked.
TEST_F(KernelTrials, ASlowCandidateRunsTwiceFromMemory) {
  const MeasurementRow row =
      outcome_of(transpose_slowly, {.caches = {.cold = true, .cache_bytes = 1000}, .best_seconds = 1e-3});
  EXPECT_EQ(row.outcome, Outcome::measured) << row.detail;
  EXPECT_EQ(runs, 2);
}

// A step uses other tensors before it uses the same ones again, and so does a trial.
TEST_F(KernelTrials, RunOnCopiesInTurn) {
  constexpr auto kBytes = static_cast<int64_t>(2 * sizeof(float) * kRows * kColumns);
  for (const size_t copies : {size_t{1}, size_t{3}, size_t{7}}) {
    sources.clear();
    const CacheUse caches{.turn_bytes = kBytes * static_cast<int64_t>(copies)};
    const MeasurementRow row = outcome_of(transpose_and_note, {.caches = caches});
    EXPECT_EQ(row.outcome, Outcome::measured) << row.detail;
    EXPECT_EQ(sources.size(), copies);
  }
}

TEST_F(KernelTrials, ACandidateThatComputesOnlyTheFirstTimeIsWrong) {
  for (const CacheUse& caches : {CacheUse{}, CacheUse{.turn_bytes = 1000}, CacheUse{true, 1000}}) {
    const MeasurementRow row = outcome_of(transpose_once, {.caches = caches});
    EXPECT_EQ(row.outcome, Outcome::wrong);
    EXPECT_NE(row.detail.find("after the timing"), std::string::npos) << row.detail;
  }
}

// Computes once, and then gives the same results for all inputs.
void relu_of_the_first_inputs(const KernelArguments* arguments) {
  static std::vector<float> results;
  const auto* const from = static_cast<const float*>(arguments->tensors[0]);
  if (results.empty())
    for (size_t k = 0; k < kColumns; ++k) results.push_back(std::max(from[k], 0.0F));
  std::memcpy(arguments->tensors[1], results.data(), sizeof(float) * kColumns);
}

TEST(Trials, WhatIsRightForTheSameInputsOnlyIsWrong) {
  const TrainingGraph training = training_of("I = 6\n\ndef f(x: float32[I]):\n    return relu(x)\n");
  const Result<Candidates> found = find_partitions(training, fuse(training), EnumerateOptions());
  ASSERT_TRUE(found);
  PartitionCandidates relu = found->partitions.front();
  find_configs(training.graph, found->domains, EnumerateOptions(), relu);
  Trials trials(training.graph, found->domains);
  const MeasurementRow row = trials.run(relu.partition, relu.candidates.front(),
                                        reinterpret_cast<void*>(relu_of_the_first_inputs), TrialSettings());
  EXPECT_EQ(row.outcome, Outcome::wrong) << row.detail;
}

}  // namespace
}  // namespace millrace
