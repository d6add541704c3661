// Every generated kernel of every model compiles with NVRTC for the supported GPUs: no GPU is needed.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/long_run.h"
#include "base/text.h"
#include "codegen/corner_programs.h"
#include "codegen/cuda/generate.h"
#include "codegen/lower.h"
#include "codegen/trials_of_programs.h"
#include "device/gpu_for_tests.h"
#include "device/gpu_kernel_cache.h"
#include "exec/gpu_executor.h"
#include "fusion/fusion_text.h"
#include "golden/golden.h"
#include "ir/attention_family.h"
#include "measure/gpu/gpu_checker.h"

namespace millrace {
namespace {

const std::vector<std::string> kBoth = {"sm_90", "sm_80"};
constexpr size_t kTogether = 12;  // kernels in one call of the compiler

// The most promising kernel of every partition, several to a source.
std::vector<std::string> sources_of(const TriedProgram& program) {
  std::vector<std::string> sources;
  size_t count = 0;
  for (const PartitionCandidates& entry : program.candidates.partitions) {
    if (entry.candidates.empty()) continue;
    const Candidate& candidate = entry.candidates.front();
    const Launch launch = lower(program.training.graph, entry.partition,
                                layouts_of(program.candidates.domains, entry.partition, candidate), candidate.config);
    if (launch.kernel.empty()) continue;
    if (count % kTogether == 0) sources.push_back(gpu_prelude());
    sources.back() += with_kernel_name(launch.kernel, concat("kernel_", count++));
  }
  return sources;
}

class CudaCompile : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<GpuCompiler>> compiler = gpu_compiler_for_tests();
    if (!compiler) GTEST_SKIP() << "no CUDA compiler: " << to_string(compiler.error());
    compiler_ = std::move(*compiler);
  }

  void compile_all(const std::vector<std::string>& sources, const std::vector<std::string>& architectures) {
    std::atomic<size_t> next = 0;
    std::mutex lock;
    std::string failed;
    const auto work = [&] {
      const size_t each = architectures.size();
      for (size_t k = next++; k < each * sources.size(); k = next++) {
        const Result<std::string> cubin = compiler_->compile(sources[k / each], architectures[k % each]);
        const std::scoped_lock locked(lock);
        if (!cubin) failed += to_string(cubin.error());
        if (cubin && cubin->empty()) failed += "an empty cubin";
      }
    };
    std::thread other(work);
    work();
    other.join();
    EXPECT_EQ(failed, "");
  }

  std::unique_ptr<GpuCompiler> compiler_;
};

TEST_F(CudaCompile, AttentionsOfSomeGradients) {
  std::vector<std::string> sources;
  for (const auto& attentions : {attentions_of_some_gradients(), attentions_without_gradients()}) {
    for (const NamedAttention& each : attentions) {
      const TriedProgram program = tried_program(each.name, each.program.text(), {"J=24", "K=40", "P=16", "W=32"},
                                                 "float16", nullptr, TriedOn::gpu);
      for (std::string& source : sources_of(program)) sources.push_back(std::move(source));
    }
  }
  compile_all(sources, {"sm_90"});
}

TEST_F(CudaCompile, AttentionsOfWideHeads) {
  const TriedProgram program = tried_program("wide", AttentionProgram().text(), {"J=64", "K=64", "P=256", "W=256"},
                                             "float16", nullptr, TriedOn::gpu);
  compile_all(sources_of(program), {"sm_90"});
}

TEST_F(CudaCompile, EveryKernelOfEveryModel) {
  std::vector<std::string> sources;
  for (const std::string& model : is_long_run() ? all_models() : models()) {
    const std::string text = text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/", model, ".py"));
    for (std::string& source : sources_of(tried_program(model, text, {"tiny"}, "float16", nullptr, TriedOn::gpu)))
      sources.push_back(std::move(source));
  }
  ASSERT_GT(sources.size(), 5U);
  compile_all(sources, {"sm_90"});  // the corners cover the one line that differs for older GPUs
}

TEST_F(CudaCompile, CornersInEveryType) {
  std::vector<std::string> sources;
  for (const auto& [program, dtype] : {std::pair(kCorners, "float32"),
                                       {kCorners, "float64"},
                                       {kCorners, "bfloat16"},
                                       {kPredicates, "float16"},
                                       {kFunctions, "float32"},
                                       {kFunctions, "float64"},
                                       {kGathers, "float16"},
                                       {kGathers, "float64"}}) {
    for (std::string& source : sources_of(tried_program("corners", program, {}, dtype, nullptr, TriedOn::gpu)))
      sources.push_back(std::move(source));
  }
  compile_all(sources, kBoth);
}

TEST_F(CudaCompile, FixedKernels) {
  compile_all({concat(gpu_prelude(), gpu_check_kernels()), concat(gpu_prelude(), executor_launch().kernel)}, kBoth);
}

size_t count_of(std::string_view what, std::string_view text) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// A kernel may start before its predecessor ends: without waiting it would read data that is not written yet.
TEST(CudaText, EveryKernelWaitsForItsPredecessor) {
  std::vector<std::string> sources = {std::string(gpu_check_kernels()), executor_launch().kernel};
  const std::string text = text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/bert_encoder.py"));
  for (const std::string& source :
       sources_of(tried_program("bert_encoder", text, {"tiny"}, "float16", nullptr, TriedOn::gpu)))
    sources.push_back(source.substr(gpu_prelude().size()));
  for (const std::string& source : sources) {
    EXPECT_GT(count_of("MR_KERNEL(", source), 0U);
    size_t at = 0;
    while ((at = source.find("MR_KERNEL(", at)) != std::string::npos) {
      const std::string head = source.substr(at, source.find("args.", source.find("{\n", at)) - at);
      EXPECT_EQ(count_of("begin();\n", head), 1U) << head;
      ++at;
    }
  }
}

}  // namespace
}  // namespace millrace
