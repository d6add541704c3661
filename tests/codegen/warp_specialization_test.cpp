// Kernels whose warps run different code: the emulated hardware runs them and finds their races and deadlocks, and a
// real GPU, if there is one, agrees. They use the operations of cuda_matrices.h that no generated kernel uses yet.
#include <gtest/gtest.h>

#include <array>

#include "base/stored_type.h"
#include "base/text.h"
#include "codegen/cuda/attention.h"
#include "codegen/cuda/generate.h"
#include "device/emulated/emulated_gpu.h"
#include "device/gpu_for_tests.h"
#include "device/gpu_memory.h"

namespace millrace {
namespace {

constexpr int kProductRows = 128;
constexpr int kProductColumns = 128;
constexpr int kProductTiles = 5;
constexpr int kProductDepth = 64 * kProductTiles;

// A product of 128 x 320 by 320 x 128, in two stages of 64 k: one warpgroup copies, and two multiply 64 rows each. An
// operand is stored with k contiguous unless it is transposed. The other kernels are small.
constexpr const char* kWarpSpecialized = R"(
namespace mr {
enum class Fault { none, no_wait, no_arrival, late_fence, early_arrival, no_barrier };

constexpr int kTiles = 5;
constexpr int kStages = 2;
constexpr int kOperandBytes = 128 * 64 * 2;
constexpr int kMbarriers = kStages * 2 * kOperandBytes;

MR_DEVICE SmemAddress full(int stage) { return smem_base() + kMbarriers + stage * 2 * kMbarrierBytes; }
MR_DEVICE SmemAddress empty(int stage) { return full(stage) + kMbarrierBytes; }

template <bool kTrans>
MR_DEVICE void fetch(SmemAddress to, const void* from, int tile) {
  constexpr int kChunks = kTrans ? 16 : 8;
  constexpr int kPitch = kTrans ? 128 : 64 * kTiles;
  const u16* const first = static_cast<const u16*>(from) + (kTrans ? tile * 64 * kPitch : tile * 64);
  for (int chunk = thread_number(); chunk < 128 * 8; chunk += 128) {
    const int line = chunk / kChunks;
    const int element = chunk % kChunks * 8;
    cp_async_16(to + swizzle(element / 64 * 64 * 128 + line * 128 + element % 64 * 2), first + line * kPitch + element,
                true);
  }
}

template <bool kTransA, bool kTransB, Fault kFault>
MR_DEVICE void produce(const void* a, const void* b) {
  reduce_registers<40>();
  for (int tile = 0; tile < kTiles; ++tile) {
    const int stage = tile % kStages;
    const SmemAddress to = smem_base() + stage * 2 * kOperandBytes;
    if (kFault != Fault::no_wait) mbarrier_wait(empty(stage), tile / kStages % 2 ^ 1);
    fetch<kTransA>(to, a, tile);
    fetch<kTransB>(to + kOperandBytes, b, tile);
    cp_async_commit();
    cp_async_wait<0>();
    if (kFault != Fault::late_fence) fence_async_proxy();
    mbarrier_arrive(full(stage));
    if (kFault == Fault::late_fence) fence_async_proxy();
  }
}

template <class T, bool kTransA, bool kTransB, bool kFromRegisters>
MR_DEVICE void multiply(float (&c)[16][4], SmemAddress a_tile, SmemAddress b_tile, int group) {
  const SmemDescriptor b = make_descriptor(b_tile, kTransB ? 64 * 128 : 16);
  constexpr int kStepB = kTransB ? 16 * 128 : 16 * 2;
  if constexpr (kFromRegisters) {
    const int row = group * 64 + thread_number() / 32 % 4 * 16 + thread_number() % 32 / 4;
    u32 a[4][4];
    MR_UNROLL
    for (int n = 0; n < 16; ++n)
      a[n / 4][n % 4] = load_smem_u32(a_tile + swizzle((row + n % 2 * 8) * 128 + n / 4 * 32 + n % 4 / 2 * 16 +
                                                       thread_number() % 4 * 4));
    wgmma_fence();
    MR_UNROLL
    for (int step = 0; step < 4; ++step) wgmma_rs<T, 128, kTransB, 0>(c, a[step], b.advanced(step * kStepB), 1);
    wgmma_commit();
    wgmma_wait();
  } else {
    const SmemDescriptor a = make_descriptor(a_tile + warp_uniform(group) * 64 * 128);
    wgmma_fence();
    MR_UNROLL
    for (int step = 0; step < 4; ++step)
      wgmma_ss<T, 128, kTransA, kTransB, 0>(c, a.advanced(step * (kTransA ? 16 * 128 : 16 * 2)),
                                            b.advanced(step * kStepB), 1);
    wgmma_commit();
  }
}

// A stage is free once the next wgmma was started and this one is done.
template <class T, bool kTransA, bool kTransB, bool kFromRegisters, Fault kFault>
MR_DEVICE void consume(float* to, int group) {
  raise_registers<232>();
  float c[16][4] = {};
  for (int tile = 0; tile < kTiles; ++tile) {
    const int stage = tile % kStages;
    const SmemAddress from = smem_base() + stage * 2 * kOperandBytes;
    mbarrier_wait(full(stage), tile / kStages % 2);
    multiply<T, kTransA, kTransB, kFromRegisters>(c, from, from + kOperandBytes, group);
    const int done = kFault == Fault::early_arrival ? tile : tile - 1;
    if (kFault != Fault::early_arrival) wgmma_wait_but<1>();
    if (kFault != Fault::no_arrival && done >= 0 && thread_number() % 32 == 0) mbarrier_arrive(empty(done % kStages));
  }
  wgmma_wait();
  for (int n = 0; n < 16; ++n)
    for (int e = 0; e < 4; ++e) fence_operand(c[n][e]);
  named_barrier(1 + group, 128);
  const int row = group * 64 + thread_number() / 32 % 4 * 16 + thread_number() % 32 / 4;
  for (int n = 0; n < 16; ++n)
    for (int e = 0; e < 4; ++e) to[(row + e / 2 * 8) * 128 + n * 8 + thread_number() % 4 * 2 + e % 2] = c[n][e];
}

// The emulated GPU runs threads together if it finds "barrier" in the kernel.
template <class T, bool kTransA, bool kTransB, bool kFromRegisters, Fault kFault = Fault::none>
MR_DEVICE void product_by_mbarriers(void* const* tensors) {
  begin();
  if (thread_number() == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      mbarrier_init(full(stage), 128);
      mbarrier_init(empty(stage), 8);
    }
  }
  if (kFault != Fault::no_barrier) barrier();
  if (thread_number() < 128)
    produce<kTransA, kTransB, kFault>(tensors[0], tensors[1]);
  else
    consume<T, kTransA, kTransB, kFromRegisters, kFault>(static_cast<float*>(tensors[2]), thread_number() / 128 - 1);
}

// Warps 0 and 1 read what warp 2 wrote and writes again; it waits for both of them, or for the later one only.
template <int kReaders>
MR_DEVICE void write_after_reads_and_barrier() {
  const SmemAddress data = smem_base();
  const SmemAddress read = smem_base() + 64;
  if (thread_number() == 64) {
    mbarrier_init(read, kReaders);
    store_smem_u32(data, 1);
  }
  barrier();
  if (thread_number() == 0 || thread_number() == 32) {
    load_smem_u32(data);
    if (kReaders == 2 || thread_number() == 32) mbarrier_arrive(read);
  }
  if (thread_number() == 64) {
    mbarrier_wait(read, 0);
    store_smem_u32(data, 2);
  }
}
}  // namespace mr
)";

std::string warp_specialized_kernel(const std::string& name, int threads, const std::string& body) {
  return concat("MR_KERNEL(", threads, ") ", name, "(MR_PARAMETER mr::Arguments<3, 1, 1> args) {\n  ", body, "\n}\n");
}

struct ProductKernel {
  StoredType type;
  bool trans_a;
  bool trans_b;
  bool from_registers;

  std::string name() const {
    return concat(name_of_type(), trans_a ? "_trans" : "", trans_b ? "_by_trans" : "", from_registers ? "_rs" : "_ss");
  }
  std::string text() const {
    const auto word = [](bool yes) { return yes ? "true" : "false"; };
    return warp_specialized_kernel(name(), 384,
                                   concat("mr::product_by_mbarriers<mr::", name_of_type(), ", ", word(trans_a), ", ",
                                          word(trans_b), ", ", word(from_registers), ">(args.tensors);"));
  }

 private:
  const char* name_of_type() const { return type == StoredType::f16 ? "f16" : "bf16"; }
};

std::vector<ProductKernel> product_kernels() {
  std::vector<ProductKernel> all;
  for (const StoredType type : {StoredType::f16, StoredType::bf16}) {
    for (const bool trans_b : {false, true}) {
      all.push_back({type, false, trans_b, true});
      for (const bool trans_a : {false, true}) all.push_back({type, trans_a, trans_b, false});
    }
  }
  return all;
}

std::string warp_specialized_source() {
  std::string text = concat(gpu_prelude(), cuda_matrices(), kWarpSpecialized);
  for (const ProductKernel& kernel : product_kernels()) text += kernel.text();
  for (const char* const fault : {"no_wait", "no_arrival", "late_fence", "early_arrival", "no_barrier"})
    text += warp_specialized_kernel(
        fault, 384,
        concat("mr::product_by_mbarriers<mr::f16, false, true, false, mr::Fault::", fault, ">(args.tensors);"));
  text += warp_specialized_kernel("one_of_two_readers", 96, "mr::write_after_reads_and_barrier<1>();");
  text += warp_specialized_kernel("both_readers", 96, "mr::write_after_reads_and_barrier<2>();");
  text += warp_specialized_kernel("partial_barrier", 96, "if (mr::thread_number() < 64) mr::barrier();");
  text += warp_specialized_kernel("named_barriers", 96, "mr::named_barrier(mr::thread_number() < 64 ? 1 : 2, 64);");
  return text;
}

// A kernel of the source on a GPU, with operands that are small integers, so that results are exact.
class WarpSpecialized : public testing::Test {
 protected:
  void use_emulated_gpu() {
    gpu_ = emulated::make_gpu();
    compile(*emulated::make_compiler());
  }
  void compile(const GpuCompiler& compiler) {
    const Result<std::string> compiled = compiler.compile(source_, gpu_->info().architecture());
    ASSERT_TRUE(compiled) << to_string(compiled.error());
    cubin_ = *compiled;
  }
  GpuMemory memory_of(const void* content, size_t bytes) {
    Result<GpuMemory> memory = GpuMemory::allocate(*gpu_, static_cast<int64_t>(bytes));
    EXPECT_TRUE(gpu_->copy_in(memory->data(), content, memory->size()));
    return std::move(*memory);
  }
  // What it writes; empty if it fails.
  std::vector<float> run(const std::string& name, int threads, const std::vector<uint16_t>& a,
                         const std::vector<uint16_t>& b) {
    Launch launch;
    launch.kernel = source_;
    launch.tensor_count = 3;
    launch.grids = {{name, 2, threads, int64_t{4} * 128 * 64 * 2 + 64}};
    launch.numbers = {{0, 0}};
    Result<std::unique_ptr<GpuLaunch>> ready = gpu_->prepare(launch, cubin_);
    EXPECT_TRUE(ready) << to_string(ready.error());
    if (!ready) return {};
    std::vector<float> results(static_cast<size_t>(kProductRows * kProductColumns), -1);
    const GpuMemory first = memory_of(a.data(), a.size() * 2);
    const GpuMemory second = memory_of(b.data(), b.size() * 2);
    const GpuMemory to = memory_of(results.data(), results.size() * sizeof(float));
    const std::array<void*, 3> tensors = {first.data(), second.data(), to.data()};
    const double value = 0;
    EXPECT_TRUE((*ready)->run(tensors.data(), &value, nullptr, nullptr));
    const Result<Done> ran = gpu_->wait();
    EXPECT_TRUE(ran) << to_string(ran.error());
    EXPECT_TRUE(gpu_->copy_out(results.data(), to.data(), to.size()));
    return results;
  }

  static int value_of(int row, int k, int factor) { return (row * factor + k * 5 + row * k % 11) % 7 - 3; }
  // Rows of 320 k, or transposed.
  static std::vector<uint16_t> operand(StoredType type, bool trans, int factor) {
    std::vector<uint16_t> stored(static_cast<size_t>(128 * kProductDepth));
    for (int row = 0; row < 128; ++row)
      for (int k = 0; k < kProductDepth; ++k)
        stored[static_cast<size_t>(trans ? k * 128 + row : row * kProductDepth + k)] =
            static_cast<uint16_t>(encode(value_of(row, k, factor), type));
    return stored;
  }
  static std::vector<float> expected() {
    std::vector<float> product;
    for (int row = 0; row < kProductRows; ++row) {
      for (int column = 0; column < kProductColumns; ++column) {
        int sum = 0;
        for (int k = 0; k < kProductDepth; ++k) sum += value_of(row, k, 3) * value_of(column, k, 4);
        product.push_back(static_cast<float>(sum));
      }
    }
    return product;
  }
  void check_products() {
    const std::vector<float> product = expected();
    for (const ProductKernel& kernel : product_kernels())
      EXPECT_TRUE(run(kernel.name(), 384, operand(kernel.type, kernel.trans_a, 3),
                      operand(kernel.type, kernel.trans_b, 4)) == product)
          << kernel.name();
  }
  void run_small(const std::string& name, int threads) {
    const std::vector<uint16_t> zeros(static_cast<size_t>(128 * kProductDepth));
    run(name, threads, zeros, zeros);
  }

  const std::string source_ = warp_specialized_source();
  std::unique_ptr<Gpu> gpu_;
  std::string cubin_;
};

TEST_F(WarpSpecialized, ProductsAreExact) {
  use_emulated_gpu();
  check_products();
}

TEST_F(WarpSpecialized, AWriteAfterBothReadersArrivedIsNoRace) {
  use_emulated_gpu();
  run_small("both_readers", 96);
}

TEST_F(WarpSpecialized, ProductsAreExactOnAGpu) {
  Result<std::unique_ptr<Gpu>> gpu = gpu_for_tests();
  if (!gpu) GTEST_SKIP() << "no GPU: " << to_string(gpu.error());
  if (!(*gpu)->info().has_wgmma()) GTEST_SKIP() << "the GPU has no wgmma";
  gpu_ = std::move(*gpu);
  const Result<std::unique_ptr<GpuCompiler>> compiler = gpu_compiler_for_tests();
  ASSERT_TRUE(compiler) << to_string(compiler.error());
  compile(**compiler);
  check_products();
}

TEST_F(WarpSpecialized, CompilesForHopper) {
  const Result<std::unique_ptr<GpuCompiler>> compiler = gpu_compiler_for_tests();
  if (!compiler) GTEST_SKIP() << "no CUDA compiler: " << to_string(compiler.error());
  const Result<std::string> cubin = (*compiler)->compile(source_, "sm_90");
  ASSERT_TRUE(cubin) << to_string(cubin.error());
}

using WarpSpecializedDeathTest = WarpSpecialized;

TEST_F(WarpSpecializedDeathTest, FaultsAreDetected) {
  use_emulated_gpu();
  const auto run_fault = [&](const char* name, int threads) {
    run_small(name, threads);
    std::exit(0);
  };
  EXPECT_DEATH(run_fault("no_wait", 384), "race: warps [0-9]+ and [0-9]+ access shared memory at");
  EXPECT_DEATH(run_fault("early_arrival", 384), "race: ");
  EXPECT_DEATH(run_fault("no_barrier", 384), "race: ");
  EXPECT_DEATH(run_fault("one_of_two_readers", 96), "race: warps 0 and 2 access shared memory at 0 ");
  EXPECT_DEATH(run_fault("late_fence", 384), "no fence_async_proxy after thread [0-9]+ wrote it");
  EXPECT_DEATH(run_fault("no_arrival", 384), "deadlock: .*thread 0 waits for mbarrier 65544; thread 128 waits for mb");
  EXPECT_DEATH(run_fault("partial_barrier", 96), "deadlock: .*thread 0 waits for barrier 0; thread 64 has ended");
  EXPECT_DEATH(run_fault("named_barriers", 96), "deadlock: .*thread 0 has ended; thread 64 waits for barrier 2");
}

}  // namespace
}  // namespace millrace
