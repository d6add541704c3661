#include "device/gpu.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "base/scratch.h"
#include "base/sha256.h"
#include "device/cuda/clock_probe.h"
#include "device/cuda/kernel_parameters.h"
#include "device/gpu_for_tests.h"
#include "device/gpu_kernel_cache.h"

namespace millrace {
namespace {

bool says(const Error& error, const std::string& words) { return to_string(error).find(words) != std::string::npos; }

TEST(Gpu, TheArchitectureFollowsFromTheCapability) {
  GpuInfo info;
  info.major = 9;
  EXPECT_EQ(info.architecture(), "sm_90");
  EXPECT_TRUE(info.has_wgmma());
  info.major = 12;
  info.minor = 1;
  EXPECT_EQ(info.architecture(), "sm_121");
  EXPECT_FALSE(info.has_wgmma());
}

TEST(Gpu, WithoutADriverItIsUnavailableWithAReason) {
  const Result<std::unique_ptr<Gpu>> gpu = gpu_for_tests();
  if (gpu) GTEST_SKIP() << "there is a GPU: " << (*gpu)->info().name;
  EXPECT_EQ(gpu.error().kind, ErrorKind::unavailable);
  EXPECT_FALSE(gpu.error().diagnostics.front().remedy.empty());
  const GpuReport report = inspect_gpu();
  EXPECT_FALSE(report.device);
  EXPECT_TRUE(says(gpu.error(), report.backend.version.empty() ? "libmillrace_cuda.so" : "CUDA driver"))
      << to_string(gpu.error());
}

TEST(Gpu, TheReportNamesWhatIsInstalledOrWhyItIsMissing) {
  use_built_backend();
  const GpuReport report = inspect_gpu();
  EXPECT_NE(report.backend.version.empty(), report.backend.missing.empty());
  EXPECT_NE(report.device.has_value(), !report.no_device.empty());
  if (report.backend.version.empty()) return;
  for (const GpuSoftware& software : {report.driver, report.nvrtc, report.cublaslt, report.cudnn}) {
    EXPECT_NE(software.version.empty(), software.missing.empty());
    EXPECT_EQ(software.version.empty(), software.path.empty());
  }
}

#ifdef MILLRACE_CUDA_BACKEND_FILE
TEST(Gpu, TheBackendThatWasBuiltCanBeLoaded) {
  use_built_backend();
  const GpuSoftware backend = inspect_gpu().backend;
  EXPECT_EQ(backend.missing, "");
  EXPECT_EQ(backend.path, MILLRACE_CUDA_BACKEND_FILE);
}
#endif

// ---- Compiling: needs NVRTC, not a GPU ----

class GpuCompilerTest : public ScratchTest {
 protected:
  void SetUp() override {
    ScratchTest::SetUp();
    Result<std::unique_ptr<GpuCompiler>> compiler = gpu_compiler_for_tests();
    if (!compiler) {
      EXPECT_EQ(compiler.error().kind, ErrorKind::unavailable);
      GTEST_SKIP() << to_string(compiler.error());
    }
    compiler_ = std::move(*compiler);
  }

  static Launch adding(int number) {
    Launch launch;
    launch.kernel = concat("extern \"C\" __global__ void MILLRACE_KERNEL(int* x) { *x += number(", number,
                           "); }\nextern \"C\" __global__ void MILLRACE_KERNEL_2(int* x) { *x -= 1; }");
    launch.grids = {{"MILLRACE_KERNEL", 1, 1}, {"MILLRACE_KERNEL_2", 1, 1}};
    return launch;
  }
  static std::vector<Launch> adding_up_to(int count) {
    std::vector<Launch> launches;
    for (int k = 0; k < count; ++k) launches.push_back(adding(k));
    return launches;
  }
  GpuKernelCache cache(const GpuCompiler& compiler, const std::string& architecture = "sm_90") const {
    return {path("cache"), compiler, "inline int number(int x) { return x; }", architecture};
  }

  std::unique_ptr<GpuCompiler> compiler_;
};

// Has the version of another compiler, and compiles nothing.
class Idle : public GpuCompiler {
 public:
  explicit Idle(std::string version) : version_(std::move(version)) {}
  const std::string& version() const override { return version_; }
  Result<std::string> compile(const std::string&, const std::string&) const override {
    return Error::make(ErrorKind::failed, "compiles nothing");
  }

 private:
  std::string version_;
};

bool is_elf(const std::string& bytes) {
  return bytes.starts_with(
      "\x7f"
      "ELF");
}

TEST_F(GpuCompilerTest, CompilesForSeveralArchitectures) {
  EXPECT_TRUE(compiler_->version().starts_with("NVRTC 1")) << compiler_->version();
  for (const char* architecture : {"sm_80", "sm_90"}) {
    const Result<std::string> cubin =
        compiler_->compile("extern \"C\" __global__ void f(float* x) { x[threadIdx.x] *= 2; }", architecture);
    ASSERT_TRUE(cubin) << to_string(cubin.error());
    EXPECT_TRUE(is_elf(*cubin));
    EXPECT_NE(cubin->find("f"), std::string::npos);
  }
}

TEST_F(GpuCompilerTest, CompilesTheClockProbe) {
  EXPECT_EQ(KernelParameters(1, {}, {}).size(), 40U) << "the size that its source declares";
  for (const char* const architecture : {"sm_80", "sm_90"}) {
    const Result<std::string> cubin = compiler_->compile(kClockSource, architecture);
    ASSERT_TRUE(cubin) << to_string(cubin.error());
    EXPECT_NE(cubin->find(kClockFunction), std::string::npos);
  }
}

TEST_F(GpuCompilerTest, AWrongSourceGivesTheLog) {
  const Result<std::string> wrong =
      compiler_->compile("extern \"C\" __global__ void f(float* x) {\n  *x = undeclared; }", "sm_90");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().kind, ErrorKind::bad_input);
  EXPECT_TRUE(says(wrong.error(), "kernel.cu(2)")) << to_string(wrong.error());
  EXPECT_TRUE(says(wrong.error(), "undeclared")) << to_string(wrong.error());
  const Result<std::string> nowhere = compiler_->compile("", "sm_1");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().kind, ErrorKind::failed);
  EXPECT_TRUE(says(nowhere.error(), "architecture")) << to_string(nowhere.error());
}

TEST_F(GpuCompilerTest, CompilesFromManyThreads) {
  std::vector<std::thread> threads;
  std::array<bool, 4> done{};
  for (size_t k = 0; k < done.size(); ++k)
    threads.emplace_back([&, k] {
      const Result<std::string> cubin = compiler_->compile(
          concat("extern \"C\" __global__ void f", k, "(float* x) { x[threadIdx.x] *= 2; }"), "sm_90");
      done[k] = cubin && cubin->find(concat("f", k)) != std::string::npos;
    });
  for (std::thread& thread : threads) thread.join();
  for (const bool one : done) EXPECT_TRUE(one);
}

TEST_F(GpuCompilerTest, TheCacheCompilesOnceAndFindsAgain) {
  std::vector<Launch> launches = adding_up_to(3);
  launches.push_back(adding(1));
  launches.emplace_back();  // a product has no kernel
  std::vector<size_t> steps;
  const auto compiled = cache(*compiler_).get(launches, 2, [&](size_t done, size_t total) {
    steps.push_back(done);
    EXPECT_EQ(total, 3U);
  });
  EXPECT_EQ(steps, (std::vector<size_t>{1, 2, 3}));
  const Idle idle(compiler_->version());
  const auto found = cache(idle).get(launches, 2);
  ASSERT_EQ(found.size(), launches.size());
  for (size_t k = 0; k < 4; ++k) {
    ASSERT_TRUE(compiled[k]) << to_string(compiled[k].error());
    ASSERT_TRUE(found[k]) << to_string(found[k].error());
    EXPECT_TRUE(is_elf(found[k]->bytes));
    EXPECT_EQ(found[k]->sha256, sha256(found[k]->bytes));
    EXPECT_EQ(found[k]->bytes, compiled[k]->bytes);
    EXPECT_EQ(found[k]->path, compiled[k]->path);
    const Launch named = with_kernel_names(launches[k], found[k]->name);
    EXPECT_EQ(named.grids[1].function, found[k]->name + "_2");
    for (const GpuGrid& grid : named.grids) EXPECT_NE(found[k]->bytes.find(grid.function), std::string::npos);
  }
  EXPECT_EQ(found[1]->name, found[3]->name);
  EXPECT_TRUE(found[4] && found[4]->name.empty() && found[4]->bytes.empty());
  EXPECT_FALSE(cache(Idle("other")).get({adding(1)}, 1).front());
  EXPECT_FALSE(cache(idle, "sm_80").get({adding(1)}, 1).front());
}

TEST_F(GpuCompilerTest, ADamagedCubinIsCompiledAgain) {
  const Idle idle(compiler_->version());
  const auto first = cache(*compiler_).get({adding(1)}, 1);
  ASSERT_TRUE(first.front()) << to_string(first.front().error());
  std::string damaged = first.front()->bytes;
  damaged[damaged.size() / 2] = static_cast<char>(~damaged[damaged.size() / 2]);
  for (const std::string& bytes : {damaged, std::string(), first.front()->bytes.substr(1)}) {
    ASSERT_TRUE(write_file(first.front()->path, bytes));
    EXPECT_FALSE(cache(idle).get({adding(1)}, 1).front());
  }
  EXPECT_EQ(cache(*compiler_).get({adding(1)}, 1).front()->bytes, first.front()->bytes);
  EXPECT_TRUE(cache(idle).get({adding(1)}, 1).front());
  ASSERT_EQ(chmod(first.front()->path.c_str(), 0666), 0);
  EXPECT_FALSE(cache(idle).get({adding(1)}, 1).front()) << "other users can write to it";
}

TEST_F(GpuCompilerTest, AKernelThatDoesNotCompileAffectsNoOther) {
  std::vector<Launch> launches = adding_up_to(3);
  launches[1].kernel = "extern \"C\" __global__ void MILLRACE_KERNEL(int* x) {\n  *x = undeclared; }";
  const GpuKernelCache all = cache(*compiler_);
  const auto compiled = all.get(launches, 2);
  EXPECT_TRUE(compiled[0] && compiled[2]);
  ASSERT_FALSE(compiled[1]);
  EXPECT_EQ(compiled[1].error().kind, ErrorKind::bad_input);
  EXPECT_TRUE(says(compiled[1].error(), "kernel(2)")) << to_string(compiled[1].error());
  const std::string kept = path("cache/failed/" + all.name_of(launches[1]) + ".cu");
  EXPECT_TRUE(says(compiled[1].error(), kept)) << to_string(compiled[1].error());
  EXPECT_EQ(*read_file(kept, 1 << 20), all.source_of(launches[1]));
}

// Records how many of its calls ran at the same time.
class Counting : public GpuCompiler {
 public:
  const std::string& version() const override { return version_; }
  Result<std::string> compile(const std::string& source, const std::string&) const override {
    const int now = ++working_;
    for (int most = most_; most < now && !most_.compare_exchange_weak(most, now);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    --working_;
    return source;
  }
  int most() const { return most_; }

 private:
  std::string version_ = "counting 1";
  mutable std::atomic<int> working_ = 0;
  mutable std::atomic<int> most_ = 0;
};

TEST_F(GpuCompilerTest, CallsAtOnceCompileNoMoreThanOne) {
  const Counting counting;
  const GpuKernelCache all = cache(counting);
  std::vector<std::thread> threads;
  for (int k = 0; k < 3; ++k) {
    threads.emplace_back([&, k] {
      std::vector<Launch> launches;
      for (int number = 0; number < 8; ++number) launches.push_back(adding(10 * k + number));
      for (const auto& cubin : all.get(launches, 2)) EXPECT_TRUE(cubin);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counting.most(), 2);
}

// Records the numbers that kernels add, in the order of compilation.
class Noting : public GpuCompiler {
 public:
  const std::string& version() const override { return version_; }
  Result<std::string> compile(const std::string& source, const std::string&) const override {
    constexpr std::string_view kBefore = "*x += number(";
    {
      const std::lock_guard lock(mutex_);
      noted_.push_back(std::stoi(source.substr(source.find(kBefore) + kBefore.size())));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return source;
  }
  std::vector<int> noted() const {
    const std::lock_guard lock(mutex_);
    return noted_;
  }

 private:
  std::string version_ = "noting 1";
  mutable std::mutex mutex_;
  mutable std::vector<int> noted_;
};

TEST_F(GpuCompilerTest, TheEarlierCallIsServedFirst) {
  const Noting noting;
  const GpuKernelCache all = cache(noting);
  std::thread first([&] { all.get(adding_up_to(12), 2); });
  while (noting.noted().empty()) std::this_thread::yield();
  std::thread second([&] { all.get({adding(100), adding(101), adding(102)}, 2); });
  first.join();
  second.join();
  const std::vector<int> noted = noting.noted();
  ASSERT_EQ(noted.size(), 15U);
  // Of two that start together, either may be recorded first.
  EXPECT_GE(*std::min_element(noted.begin() + 13, noted.end()), 100) << "kernels of the second call come last";
}

TEST_F(GpuCompilerTest, UnwantedKernelsAreNotCompiled) {
  const Noting noting;
  const GpuKernelCache all = cache(noting);
  std::vector<Result<CompiledCubin>> compiled;
  std::thread asking([&] { compiled = all.get(adding_up_to(100), 1); });
  while (noting.noted().empty()) std::this_thread::yield();
  all.forget();
  asking.join();
  ASSERT_EQ(compiled.size(), 100U);
  EXPECT_TRUE(compiled.front());
  EXPECT_FALSE(compiled.back());
  EXPECT_LT(noting.noted().size(), 100U);
  for (const auto& cubin : all.get(adding_up_to(3), 1)) EXPECT_TRUE(cubin) << "the cache must still work";
}

TEST_F(GpuCompilerTest, ThreadsShareACache) {
  const GpuKernelCache all = cache(*compiler_);
  std::vector<std::thread> threads;
  std::array<bool, 2> done{};
  for (size_t k = 0; k < done.size(); ++k)
    threads.emplace_back([&, k] {
      done[k] = true;
      for (const auto& cubin : all.get(adding_up_to(4), 2)) done[k] = done[k] && cubin && is_elf(cubin->bytes);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(done[0] && done[1]);
  for (const auto& entry : std::filesystem::directory_iterator(path("cache")))
    EXPECT_EQ(entry.path().filename().string().find("tmp"), std::string::npos) << entry.path();
}

TEST_F(GpuCompilerTest, ACacheThatCannotBeWrittenIsReported) {
  const GpuKernelCache nowhere("/proc/millrace", *compiler_, "", "sm_90");
  const auto compiled = nowhere.get({adding(1), adding(2)}, 1);
  ASSERT_EQ(compiled.size(), 2U);
  EXPECT_TRUE(says(compiled[1].error(), "/proc/millrace")) << to_string(compiled[1].error());
}

TEST(GpuKernelNames, EveryOccurrenceOfTheTokenIsReplaced) {
  EXPECT_EQ(with_kernel_name("MILLRACE_KERNEL_1 MILLRACE_KERNEL(MILLRACE_KERNE)", "k_0"), "k_0_1 k_0(MILLRACE_KERNE)");
  EXPECT_EQ(with_kernel_name("", "k"), "");
  EXPECT_EQ(with_kernel_name("MILLRACE_KERNEL", "MILLRACE_KERNEL"), "MILLRACE_KERNEL");
}

}  // namespace
}  // namespace millrace
