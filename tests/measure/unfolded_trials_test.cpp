// Random convolutions whose windows are unfolded: trials compare every product with the reference, on the CPU and on an
// emulated GPU.
#include <gtest/gtest.h>

#include <random>

#include "base/sanitized.h"
#include "base/scratch.h"
#include "base/text.h"
#include "candidates/enumerate.h"
#include "codegen/cuda/generate.h"
#include "codegen/lower.h"
#include "device/backend.h"
#include "device/emulated/emulated_gpu.h"
#include "device/gpu_kernel_cache.h"
#include "fusion/fusion_text.h"
#include "measure/gpu/gpu_trial.h"
#include "measure/trial.h"

namespace millrace {
namespace {

class DrawnConvolution {
 public:
  explicit DrawnConvolution(uint32_t seed) : random_(seed) {}

  std::string text(const std::string& dtype) {
    const bool two = chance();
    const int64_t stride = 1 + below(3);
    const int64_t padding = below(3);
    std::string image;
    std::string window;
    for (int axis = 0; axis < (two ? 2 : 1); ++axis) {
      const int64_t extent = 4 + below(6);
      image += concat(", ", extent);
      window += concat(", ", 1 + below(std::min<int64_t>(extent, 4)));
    }
    const int64_t channels = 1 + below(4);
    return concat("def f(x: ", dtype, "[", 1 + below(3), ", ", channels, image, "], w: ", dtype, "[", 1 + below(5),
                  ", ", channels, window, "]):\n    y = conv", two ? 2 : 1, "d(x, w, stride=", stride,
                  ", padding=", padding, ")\n    return y\n");
  }

 private:
  int64_t below(int64_t count) { return static_cast<int64_t>(random_() % static_cast<uint32_t>(count)); }
  bool chance() { return below(2) == 0; }

  std::mt19937 random_;
};

// Calls `body` with partitions and candidates that unfold an operand, some of each partition.
template <class Body>
size_t for_each_unfolded(const TrainingGraph& training, Candidates& candidates, const EnumerateOptions& options,
                         size_t most, const Body& body) {
  size_t count = 0;
  for (PartitionCandidates& entry : candidates.partitions) {
    if (entry.partition.kind != PartitionKind::contraction) continue;
    find_configs(training.graph, candidates.domains, options, entry);
    std::vector<const Candidate*> unfolded;
    for (const Candidate& candidate : entry.candidates) {
      const auto* const gemm = std::get_if<GemmConfig>(&candidate.config);
      if (gemm != nullptr && gemm->unfolded != kNoIndex) unfolded.push_back(&candidate);
    }
    const size_t step = std::max<size_t>(unfolded.size() / most, 1);
    for (size_t k = 0; k < unfolded.size(); k += step, ++count) body(entry.partition, *unfolded[k]);
  }
  return count;
}

TEST(UnfoldedTrials, OfRandomConvolutionsAreRight) {
  EnumerateOptions options;
  options.threads = 2;
  options.layouts = {{"x", "any"}, {"w", "any"}, {"y", "any"}};
  const Result<std::shared_ptr<Backend>> cpu = find_backend("cpu");
  ASSERT_TRUE(cpu) << to_string(cpu.error());
  options.libraries = (*cpu)->libraries().there;
  options.lacking = (*cpu)->libraries().lacking;
  if (options.libraries.empty()) GTEST_SKIP() << "no library here: kernels have tests of their own";
  size_t count = 0;
  for (uint32_t seed = 0; seed < (kSanitized ? 4U : 24U); ++seed) {
    const std::string text = DrawnConvolution(seed).text(seed % 3 == 0   ? "float64"
                                                         : seed % 3 == 1 ? "float32"
                                                                         : "float16");
    const TrainingGraph training = training_of(text);
    Result<Candidates> found = find_partitions(training, fuse(training), options);
    ASSERT_TRUE(found) << to_string(found.error());
    Trials trials(training.graph, found->domains);
    TrialSettings settings;
    settings.seconds = 0;
    count +=
        for_each_unfolded(training, *found, options, 8, [&](const Partition& partition, const Candidate& candidate) {
          const MeasurementRow row = trials.run(partition, candidate, nullptr, settings);
          EXPECT_EQ(row.outcome, Outcome::measured) << text << partition.name << ": " << row.detail << "\n"
                                                    << print_candidate(found->domains, partition, candidate);
        });
  }
  EXPECT_GT(count, kSanitized ? 20U : 300U);
}

class UnfoldedGpuTrials : public ScratchTest {};

TEST_F(UnfoldedGpuTrials, OfRandomConvolutionsAreRight) {
  EnumerateOptions options;
  options.target = gpu_target({2});
  options.libraries = {GemmLibrary::cublaslt};
  options.layouts = {{"x", "any"}, {"w", "any"}, {"y", "any"}};
  const std::unique_ptr<Gpu> gpu = emulated::make_gpu();
  const std::unique_ptr<GpuCompiler> compiler = emulated::make_compiler();
  const GpuKernelCache cache(path("cache"), *compiler, gpu_prelude(), "sm_90");
  size_t count = 0;
  for (uint32_t seed = 100; seed < (kSanitized ? 102U : 105U); ++seed) {
    const std::string text = DrawnConvolution(seed).text(seed % 2 == 0 ? "float32" : "bfloat16");
    const TrainingGraph training = training_of(text);
    Result<Candidates> found = find_partitions(training, fuse(training), options);
    ASSERT_TRUE(found) << to_string(found.error());
    Result<GpuTrials> trials = GpuTrials::make(*gpu, *compiler, path("cache"), training.graph, found->domains);
    ASSERT_TRUE(trials) << to_string(trials.error());
    count +=
        for_each_unfolded(training, *found, options, 2, [&](const Partition& partition, const Candidate& candidate) {
          const Launch launch =
              lower(training.graph, partition, layouts_of(found->domains, partition, candidate), candidate.config);
          EXPECT_FALSE(launch.kernel.empty());
          const Result<CompiledCubin> cubin = cache.get({launch}, 1).front();
          ASSERT_TRUE(cubin) << to_string(cubin.error());
          const Result<MeasurementRow> row = trials->run(partition, candidate, cubin->bytes, cubin->name, {});
          ASSERT_TRUE(row) << to_string(row.error());
          EXPECT_EQ(row->outcome, Outcome::measured) << text << partition.name << ": " << row->detail;
        });
  }
  EXPECT_GT(count, 3U);
}

}  // namespace
}  // namespace millrace
