// The emulated GPU is stricter than a real one: errors that a real GPU may miss are always found here.
#include "device/emulated/emulated_gpu.h"

#include <gtest/gtest.h>

#include "codegen/cuda/generate.h"
#include "device/gpu_memory.h"

namespace millrace {
namespace {

constexpr const char* kKernels = R"(
MR_KERNEL(64) doubled(MR_PARAMETER mr::Arguments<2, 1, 1> args) {
  mr::begin();
  const int k = mr::block_number() * 64 + mr::thread_number();
  static_cast<float*>(args.tensors[1])[k] = 2 * static_cast<const float*>(args.tensors[0])[k] + (float)args.values[0];
}
MR_KERNEL(64) summed(MR_PARAMETER mr::Arguments<2, 1, 1> args) {
  mr::begin();
  MR_SHARED float slots[2];
  float x = static_cast<const float*>(args.tensors[0])[mr::thread_number()];
  mr::put_warp(mr::reduce_warp<mr::Sum, 64>(x), slots);
  mr::group_barrier<64, 1>();
  x = mr::gather_warps<mr::Sum, 64>(slots);
  static_cast<float*>(args.tensors[1])[mr::thread_number()] = x;
}
MR_KERNEL(64) wide(MR_PARAMETER mr::Arguments<2, 1, 1> args) {
  mr::begin();
  reinterpret_cast<mr::Chunk16*>(args.tensors[1])[0] = mr::Chunk16{};
}
)";

class EmulatedGpu : public testing::Test {
 protected:
  static const std::string& source() {
    static const std::string text = gpu_prelude() + kKernels;
    return text;
  }
  static const std::string& cubin() {
    static const Result<std::string> compiled = emulated::make_compiler()->compile(source(), "sm_90");
    EXPECT_TRUE(compiled) << to_string(compiled.error());
    return *compiled;
  }
  std::unique_ptr<GpuLaunch> launch(const char* function, int64_t blocks, int threads = 64) {
    Launch asked;
    asked.kernel = source();
    asked.tensor_count = 2;
    asked.grids = {{function, blocks, threads}};
    asked.numbers = {{0, 0}};
    Result<std::unique_ptr<GpuLaunch>> made = gpu_->prepare(asked, cubin());
    return made ? std::move(*made) : nullptr;
  }
  Result<Done> run(GpuLaunch& launched, void* from, void* to, double value = 0) {
    const std::array<void*, 2> tensors = {from, to};
    return launched.run(tensors.data(), &value, nullptr, nullptr);
  }
  GpuMemory floats(size_t count, float value) {
    Result<GpuMemory> memory = GpuMemory::allocate(*gpu_, static_cast<int64_t>(count * sizeof(float)));
    const std::vector<float> values(count, value);
    EXPECT_TRUE(gpu_->copy_in(memory->data(), values.data(), memory->size()));
    return std::move(*memory);
  }
  std::vector<float> taken(const GpuMemory& memory) {
    std::vector<float> values(static_cast<size_t>(memory.size()) / sizeof(float));
    EXPECT_TRUE(gpu_->copy_out(values.data(), memory.data(), memory.size()));
    return values;
  }
  std::string said() {
    const Result<Done> waited = gpu_->wait();
    return waited ? "" : to_string(waited.error());
  }

  std::unique_ptr<Gpu> gpu_ = emulated::make_gpu();
};

TEST_F(EmulatedGpu, RunsKernelsWithBarriersAndGraphsOfThem) {
  const GpuMemory x = floats(128, 3);
  const GpuMemory y = floats(128, 0);
  const GpuMemory z = floats(64, 0);
  const std::unique_ptr<GpuLaunch> twice = launch("doubled", 2);
  const std::unique_ptr<GpuLaunch> sum = launch("summed", 1);
  ASSERT_TRUE(twice && sum);
  const auto work = [&]() -> Result<Done> {
    if (Result<Done> ran = run(*twice, x.data(), y.data(), 1); !ran) return ran;
    return run(*sum, y.data(), z.data());
  };
  EXPECT_FALSE(gpu_->record(work)) << "what was never run is recorded";
  ASSERT_TRUE(work());
  EXPECT_EQ(taken(z), std::vector<float>(64, 64 * 7));
  const Result<std::unique_ptr<GpuGraph>> graph = gpu_->record(work);
  ASSERT_TRUE(graph) << to_string(graph.error());
  const std::vector<float> other(128, 5);
  ASSERT_TRUE(gpu_->copy_in(x.data(), other.data(), x.size()));
  EXPECT_EQ(taken(z), std::vector<float>(64, 64 * 7)) << "recording ran it";
  ASSERT_TRUE((*graph)->replay());
  EXPECT_EQ(taken(z), std::vector<float>(64, 64 * 11));
  const Result<double> once = gpu_->time({}, work);
  const Result<double> again = gpu_->time({}, [&] { return (*graph)->replay(); });
  ASSERT_TRUE(once && again);
  EXPECT_DOUBLE_EQ(*once, *again);
}

TEST_F(EmulatedGpu, MoreSharedMemoryThanABlockMayHaveIsRefused) {
  Launch asked;
  asked.kernel = source();
  asked.tensor_count = 2;
  asked.numbers = {{0, 0}};
  asked.grids = {{"doubled", 1, 64, gpu_->info().shared_bytes}};
  EXPECT_TRUE(gpu_->prepare(asked, cubin()));
  for (const int64_t bytes : {gpu_->info().shared_bytes + 1, int64_t{-1}}) {
    asked.grids.front().shared_bytes = bytes;
    EXPECT_FALSE(gpu_->prepare(asked, cubin())) << bytes;
  }
}

TEST_F(EmulatedGpu, CallsThatCannotBeRecordedAreRefused) {
  const GpuMemory x = floats(4, 1);
  std::vector<float> host(4);
  const std::vector<std::function<Result<Done>()>> calls = {[&] { return gpu_->wait(); },
                                                            [&] { return gpu_->copy_in(x.data(), host.data(), 16); },
                                                            [&] { return gpu_->copy_out(host.data(), x.data(), 16); },
                                                            [&]() -> Result<Done> {
                                                              const Result<void*> memory = gpu_->allocate(16);
                                                              if (!memory) return memory.error();
                                                              return Done{};
                                                            }};
  for (const auto& call : calls) {
    const Result<std::unique_ptr<GpuGraph>> graph = gpu_->record([&]() -> Result<Done> {
      static_cast<void>(call());  // a caller that ignores the error gets it from the recording
      return Done{};
    });
    ASSERT_FALSE(graph);
    EXPECT_NE(to_string(graph.error()).find("CAPTURE"), std::string::npos);
  }
  EXPECT_TRUE(gpu_->record([&] { return gpu_->fill(x.data(), 0, 16); }));
  EXPECT_EQ(taken(x), std::vector<float>(4, 1));
}

TEST_F(EmulatedGpu, HostAddressesAreRefused) {
  std::vector<float> host(64);
  const GpuMemory x = floats(64, 1);
  EXPECT_FALSE(gpu_->copy_in(host.data(), host.data(), 16));
  EXPECT_FALSE(gpu_->copy_in(x.data(), x.data(), 16));
  EXPECT_FALSE(gpu_->copy_in(x.bytes_at(250), host.data(), 16));
  EXPECT_FALSE(gpu_->copy_out(x.data(), x.data(), 16));
  EXPECT_EQ(said(), "");
  const std::unique_ptr<GpuLaunch> twice = launch("doubled", 1);
  ASSERT_TRUE(run(*twice, x.data(), host.data())) << "it is only put on the stream";
  EXPECT_NE(said().find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
  EXPECT_FALSE(gpu_->fill(x.data(), 0, 16)) << "nothing works after that";
}

TEST_F(EmulatedGpu, FreedMemoryIsNoLongerTheDevices) {
  const GpuMemory x = floats(64, 1);
  const std::unique_ptr<GpuLaunch> twice = launch("doubled", 1);
  void* gone = nullptr;
  {
    const GpuMemory y = floats(64, 1);
    gone = y.data();
  }
  ASSERT_TRUE(run(*twice, x.data(), gone));
  EXPECT_NE(said().find("tensor 1"), std::string::npos);
}

TEST_F(EmulatedGpu, AKernelThatCannotBeLaunchedIsRefused) {
  EXPECT_TRUE(launch("doubled", 1));
  EXPECT_FALSE(launch("doubled", 0));
  EXPECT_FALSE(launch("doubled", 1, 65)) << "more threads than its bounds";
  EXPECT_FALSE(launch("tripled", 1));
}

using EmulatedGpuDeathTest = EmulatedGpu;

TEST_F(EmulatedGpuDeathTest, AWriteOutsideAnAllocationIsDetected) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto write_beyond = [&] {
    const GpuMemory x = floats(128, 1);
    const GpuMemory y = floats(100, 1);
    const std::unique_ptr<GpuLaunch> twice = launch("doubled", 2);
    static_cast<void>(run(*twice, x.data(), y.data()));
    std::fputs(said().c_str(), stderr);
    std::exit(3);
  };
  EXPECT_EXIT(write_beyond(), testing::ExitedWithCode(3), "beside an allocation");
}

TEST_F(EmulatedGpuDeathTest, AMisalignedWideAccessTraps) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto write_apart = [&] {
    const GpuMemory x = floats(128, 1);
    const std::unique_ptr<GpuLaunch> written = launch("wide", 1);
    static_cast<void>(run(*written, x.data(), x.bytes_at(4)));
    static_cast<void>(gpu_->wait());
    std::exit(0);
  };
  EXPECT_DEATH(write_apart(), "");
}

TEST_F(EmulatedGpuDeathTest, AnAllocationLeftAtTheEndIsDetected) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto leave = [&] {
    static_cast<void>(gpu_->allocate(10));
    gpu_.reset();
    std::exit(0);
  };
  EXPECT_DEATH(leave(), "1 allocations are left");
}

}  // namespace
}  // namespace millrace
