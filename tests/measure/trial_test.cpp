// Trials on the CPU, of products that are too large for the reference.
#include "measure/trial.h"

#include <gtest/gtest.h>

#include "base/sanitized.h"
#include "candidates/adding_program.h"
#include "candidates/enumerate.h"
#include "device/cpu/blas_library.h"
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

}  // namespace
}  // namespace millrace
