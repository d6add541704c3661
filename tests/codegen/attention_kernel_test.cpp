// Generated kernels of fused attention against the definition in double: on the emulated GPU, so that they are tested
// everywhere; on a real GPU if there is one; and compiled for the architectures that we support.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "base/long_run.h"
#include "base/sanitized.h"
#include "base/text.h"
#include "codegen/attention_cases.h"
#include "codegen/attention_reference.h"
#include "codegen/cuda/attention.h"
#include "codegen/cuda/generate.h"
#include "codegen/lower.h"
#include "device/emulated/emulated_gpu.h"
#include "device/gpu_for_tests.h"
#include "device/gpu_kernel_cache.h"
#include "device/gpu_memory.h"

namespace millrace {
namespace {

using AxisOrder = AttentionProblem::AxisOrder;
using MaskOrder = AttentionProblem::MaskOrder;

std::string source_of(const Launch& launch) { return concat(gpu_prelude(), launch.kernel); }

Launch launch_of(const AttentionProblem& problem, const AttentionConfig& config) {
  const BuiltAttention made = build_attention(problem);
  return lower(made.graph, made.partition, made.layouts, config);
}

struct Machine {
  std::shared_ptr<Gpu> gpu;
  std::shared_ptr<GpuCompiler> compiler;
};

Machine emulated_machine() { return {emulated::make_gpu(), emulated::make_compiler()}; }

// Runs a kernel on outputs filled with NaN; one result for each operand that it writes.
class AttentionResults {
 public:
  AttentionResults(Machine machine, const AttentionReference& reference, const AttentionRun& run,
                   const AttentionConfig& config)
      : machine_(std::move(machine)),
        reference_(reference),
        partition_(reference.built().partition),
        backward_(partition_.attention.backward) {
    const Launch launch = lower(reference.built().graph, partition_, reference.built().layouts, config);
    const Result<std::string> cubin =
        machine_.compiler->compile(source_of(launch), machine_.gpu->info().architecture());
    if (!cubin) {
      ADD_FAILURE() << to_string(cubin.error());
      return;
    }
    const Result<std::unique_ptr<GpuLaunch>> ready = machine_.gpu->prepare(launch, *cubin);
    if (!ready) {
      ADD_FAILURE() << to_string(ready.error());
      return;
    }
    allocate();
    const GpuState state{run.seed, run.step, 0};
    const GpuMemory place = memory_of(sizeof(state), &state);
    const std::vector<std::byte> poison(static_cast<size_t>((*ready)->scratch_bytes()), std::byte{0xff});
    const GpuMemory scratch = memory_of(poison.size(), poison.data());
    std::vector<void*> pointers;
    for (const GpuMemory& memory : memory_) pointers.push_back(memory.size() == 0 ? nullptr : memory.data());
    const Result<Done> ran = (*ready)->run(pointers.data(), nullptr, place.data(), scratch.data());
    EXPECT_TRUE(ran) << to_string(ran.error());
    const Result<Done> waited = machine_.gpu->wait();
    EXPECT_TRUE(waited) << to_string(waited.error());
    for (const Attention::Operand operand : AttentionReference::written(backward_)) {
      std::vector<std::byte> bytes(reference_.bytes_of(operand).size());
      EXPECT_TRUE(
          machine_.gpu->copy_out(bytes.data(), memory_[position(operand)].data(), static_cast<int64_t>(bytes.size())));
      results_.push_back(reference_.values_in(bytes, operand));
    }
    if (!reference_.mask_bits().empty() && !backward_) {
      std::vector<std::byte> bits(reference_.mask_bits().size());
      EXPECT_TRUE(
          machine_.gpu->copy_out(bits.data(), memory_[mask_position()].data(), static_cast<int64_t>(bits.size())));
      EXPECT_TRUE(bits == reference_.mask_bits()) << "the mask";
    }
  }

  const std::vector<std::vector<double>>& results() const { return results_; }

  // The distance of each written operand from the expected values.
  std::vector<double> distances_from(const AttentionReference& expected) const {
    std::vector<double> found;
    const std::vector<Attention::Operand> written = AttentionReference::written(backward_);
    for (size_t k = 0; k < results_.size(); ++k) found.push_back(expected.distance(results_[k], written[k]));
    return found;
  }

 private:
  GpuMemory memory_of(size_t bytes, const void* content) {
    Result<GpuMemory> memory = GpuMemory::allocate(*machine_.gpu, static_cast<int64_t>(bytes));
    const Result<Done> copied = bytes == 0 ? Done{} : machine_.gpu->copy_in(memory->data(), content, memory->size());
    EXPECT_TRUE(copied) << to_string(copied.error());
    return std::move(*memory);
  }
  size_t position(TensorId tensor) const {
    const std::vector<TensorId> tensors = tensors_of(partition_);
    return static_cast<size_t>(std::find(tensors.begin(), tensors.end(), tensor) - tensors.begin());
  }
  size_t position(Attention::Operand operand) const { return position(partition_.attention.tensors[operand]); }
  size_t mask_position() const { return position(partition_.attention.mask); }
  void allocate() {
    memory_.resize(tensors_of(partition_).size());
    if (const std::vector<std::byte>& bits = reference_.mask_bits(); !bits.empty()) {
      const std::vector<std::byte> poison(bits.size(), std::byte{0xff});
      memory_[mask_position()] = memory_of(bits.size(), backward_ ? bits.data() : poison.data());
    }
    for (const Attention::Operand operand : AttentionReference::read(backward_)) {
      const std::vector<std::byte> bytes = reference_.bytes_of(operand);
      memory_[position(operand)] = memory_of(bytes.size(), bytes.data());
    }
    for (const Attention::Operand operand : AttentionReference::written(backward_)) {
      const std::vector<std::byte> poison(reference_.bytes_of(operand).size(), std::byte{0xff});
      memory_[position(operand)] = memory_of(poison.size(), poison.data());
    }
  }

  Machine machine_;  // outlives its memory
  const AttentionReference& reference_;
  const Partition& partition_;
  bool backward_;
  std::vector<GpuMemory> memory_;
  std::vector<std::vector<double>> results_;
};

// Infinite if there are no results because the launch failed.
double largest_distance(const std::vector<double>& distances) {
  return distances.empty() ? std::numeric_limits<double>::infinity()
                           : *std::max_element(distances.begin(), distances.end());
}

class AttentionKernel : public testing::TestWithParam<bool> {};

// Every one in a long run, otherwise every sixth.
TEST_P(AttentionKernel, AgreesWithTheDefinition) {
  const std::vector<AttentionCase> all = attention_cases();
  for (size_t k = 0; k < all.size(); k += is_long_run() ? 1 : 6) {
    const AttentionCase& one = all[k];
    AttentionProblem problem = one.problem;
    problem.backward = GetParam();
    const AttentionRun run;
    const AttentionReference reference(problem, run);
    const AttentionResults emulated(emulated_machine(), reference, run, one.config);
    EXPECT_LE(largest_distance(emulated.distances_from(reference)), 1) << one.name;
  }
}

// Random sizes, layouts, masks, scales and configs.
AttentionCase random_case(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t count) { return static_cast<int64_t>(random() % static_cast<uint64_t>(count)); };
  const auto one_of = [&](const auto& list) { return list[static_cast<size_t>(below(std::ssize(list)))]; };
  AttentionProblem p;
  p.dtype = one_of(std::vector{DType::float16, DType::bfloat16});
  p.backward = below(2) == 0;
  p.causal = below(3) == 0;
  p.rate = one_of(std::vector{0.0, 0.1, 0.5});
  p.batch.clear();
  for (int64_t k = below(3); k > 0; --k) p.batch.push_back(1 + below(3));
  for (size_t k = 0; k < p.batch.size(); ++k) {
    if (below(3) == 0) p.groups.push_back(k);
  }
  const std::vector<AxisOrder> all = {AxisOrder::batch_rows_columns, AxisOrder::rows_batch_columns,
                                      AxisOrder::reversed_batch_rows_columns, AxisOrder::columns_batch_rows,
                                      AxisOrder::batch_columns_rows};
  p.inputs = one_of(all);
  p.results = one_of(all);
  p.gradients = one_of(all);
  const bool together =
      std::max({p.inputs, p.results, p.gradients}) >= AxisOrder::columns_batch_rows;  // an operand is col-major
  const int64_t step = together || below(2) == 0 ? 8 : 1;
  p.queries = step * (1 + below(100 / step));
  p.keys = step * (1 + below(140 / step));
  p.inner = 8 * (1 + below(8));
  p.values = 8 * (1 + below(8));
  p.mask_order =
      one_of(std::vector{MaskOrder::keys_last, MaskOrder::keys_last, MaskOrder::queries_last, MaskOrder::batch_last});
  if (p.batch.empty() && p.mask_order == MaskOrder::batch_last) p.mask_order = MaskOrder::keys_last;
  p.scales.clear();
  for (int64_t k = below(3); k > 0; --k) p.scales.push_back(static_cast<double>(below(9) - 4) / 8);
  AttentionConfig config{1 << below(3), static_cast<int>(1 + below(2)), static_cast<int>(32 << below(2)),
                         static_cast<int>(1 + below(3))};
  if (below(3) == 0) {
    for (int64_t* extent : {&p.queries, &p.keys, &p.inner, &p.values}) *extent = 64 * (1 + below(2));
    p.causal = false;
    config = {4, 1, 64, 2, true};
  } else if (below(4) == 0) {
    p.inner = 64;
    p.values = 64 * (1 + below(2));
    config = {below(2) == 0 ? 4 : 8, 1, 64, static_cast<int>(1 + below(3)), true, true};
  }
  if (below(2) == 0) {
    config.rows_in_smem = config.wgmma;
    p.keys = std::min<int64_t>(p.keys, 16 * config.warps * config.row_tiles);
    AttentionProblem backward = p;
    backward.backward = true;
    config.single_kernel = can_be_single_kernel(build_attention(backward).partition.attention, config);
  }
  p.mask_bits =
      p.rate > 0 && p.mask_order == MaskOrder::keys_last && p.keys % 32 == 0 && config.warps * config.row_tiles > 1;
  return {concat("random, seed ", seed, ": ", print_config(config), "; ", p.queries, " x ", p.keys, ", ", p.inner,
                 " and ", p.values, p.causal ? ", causal" : "", p.backward ? ", backward" : ", forward"),
          config, p};
}

TEST(RandomAttentionKernel, AgreesWithTheDefinition) {
  const uint64_t usual = is_long_run() ? 12 : 4;
  const char* const asked = std::getenv("MILLRACE_RANDOM_KERNELS");
  const uint64_t count = asked == nullptr ? tried_of(usual) : std::stoull(asked);
  for (uint64_t seed = 1; seed <= count; ++seed) {
    const AttentionCase one = random_case(seed);
    const AttentionRun run{seed, static_cast<uint32_t>(seed)};
    const AttentionReference reference(one.problem, run, static_cast<unsigned>(seed));
    const AttentionResults results(emulated_machine(), reference, run, one.config);
    EXPECT_LE(largest_distance(results.distances_from(reference)), 1) << one.name;
  }
}

// Errors that a kernel could make are much larger than the bounds.
TEST_P(AttentionKernel, WrongResultsAreFarOutsideTheBounds) {
  AttentionProblem problem;
  problem.backward = GetParam();
  problem.rate = 0.25;
  problem.causal = true;
  const AttentionRun run;
  const AttentionReference reference(problem, run);
  const AttentionResults emulated(emulated_machine(), reference, run, {2, 1, 32, 2});
  ASSERT_LE(largest_distance(emulated.distances_from(reference)), 1);
  const auto far_from = [&](const AttentionProblem& other, const AttentionRun& other_run) {
    return largest_distance(emulated.distances_from(AttentionReference(other, other_run)));
  };
  EXPECT_GT(far_from(problem, {run.seed + 1, run.step}), 10) << "another mask";
  EXPECT_GT(far_from(problem, {run.seed, run.step + 1}), 10) << "another step's mask";
  AttentionProblem wrong = problem;
  wrong.scales = {};
  EXPECT_GT(far_from(wrong, run), 10) << "no scale";
  wrong = problem;
  wrong.causal = false;
  EXPECT_GT(far_from(wrong, run), 10) << "not causal";
  wrong = problem;
  wrong.mask_order = MaskOrder::queries_last;
  EXPECT_GT(far_from(wrong, run), 10) << "a mask with other neighbours";
}

TEST_P(AttentionKernel, IsBitwiseReproducible) {
  AttentionProblem problem;
  problem.backward = GetParam();
  problem.rate = 0.25;
  const AttentionRun run;
  const AttentionReference reference(problem, run);
  EXPECT_EQ(AttentionResults(emulated_machine(), reference, run, {2, 1, 32, 2}).results(),
            AttentionResults(emulated_machine(), reference, run, {2, 1, 32, 2}).results());
}

// A NaN or infinity in an operand shows in every result that depends on it.
TEST_P(AttentionKernel, PropagatesNaNAndInfinity) {
  const bool backward = GetParam();
  AttentionProblem problem;
  problem.backward = backward;
  problem.batch = {1};
  problem.rate = 0.25;
  const AttentionRun run;
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const Attention::Operand operand : AttentionReference::read(backward)) {
      if (operand == Attention::log_sums && std::isinf(bad)) continue;  // p is 0 then, by definition
      AttentionReference reference(problem, run);
      reference[operand].values[3] = bad;
      const AttentionResults emulated(emulated_machine(), reference, run, {1, 1, 32, 2});
      size_t bad_results = 0;
      for (const std::vector<double>& result : emulated.results())
        bad_results += static_cast<size_t>(
            std::count_if(result.begin(), result.end(), [](double x) { return !std::isfinite(x); }));
      EXPECT_GT(bad_results, 0U) << "operand " << operand << " " << bad;
    }
  }
}

TEST_P(AttentionKernel, GridRequestsItsSharedMemory) {
  AttentionProblem problem;
  problem.backward = GetParam();
  problem.queries = problem.keys = 192;
  problem.inner = problem.values = 64;
  const Attention attention = build_attention(problem).partition.attention;
  for (const AttentionConfig& config :
       {AttentionConfig{4, 1, 64, 2}, AttentionConfig{8, 1, 32, 3}, AttentionConfig{4, 1, 64, 3, true},
        AttentionConfig{8, 2, 64, 2, false, false, true}}) {
    for (const GpuGrid& grid : launch_of(problem, config).grids) {
      EXPECT_EQ(grid.shared_bytes, attention_shared_bytes(attention, config));
      EXPECT_EQ(grid.threads, threads_of_block(config));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, AttentionKernel, testing::Values(false, true),
                         [](const testing::TestParamInfo<bool>& pass) {
                           return std::string(pass.param ? "Backward" : "Forward");
                         });

// Kernels compile slowly, and there are many layouts.
TEST_P(AttentionKernel, IsTheSameForAllLayoutsOfOneOrder) {
  AttentionProblem problem;
  problem.backward = GetParam();
  const auto text_of = [&](AxisOrder inputs) {
    problem.set_order(inputs);
    return launch_of(problem, {4, 1, 64, 2}).kernel;
  };
  const std::string row_major = text_of(AxisOrder::batch_rows_columns);
  EXPECT_EQ(row_major, text_of(AxisOrder::rows_batch_columns));
  EXPECT_EQ(row_major, text_of(AxisOrder::reversed_batch_rows_columns));
  const std::string col_major = text_of(AxisOrder::batch_columns_rows);
  EXPECT_EQ(col_major, text_of(AxisOrder::columns_batch_rows));
  EXPECT_NE(row_major, col_major);
}

// --- A real GPU ---

// The cases of the emulated GPU, and configs that occupy a real one; results are bitwise reproducible.
void agrees_on_a_gpu(bool backward) {
  Result<std::unique_ptr<Gpu>> gpu = gpu_for_tests();
  if (!gpu) GTEST_SKIP() << "no GPU: " << to_string(gpu.error());
  Result<std::unique_ptr<GpuCompiler>> compiler = gpu_compiler_for_tests();
  ASSERT_TRUE(compiler) << to_string(compiler.error());
  const Machine machine{std::move(*gpu), std::move(*compiler)};
  const AttentionRun run;
  const bool wgmma = machine.gpu->info().has_wgmma();
  const auto try_config = [&](const AttentionReference& reference, const AttentionConfig& config,
                              const std::string& name) {
    if (config.wgmma && !wgmma) return;
    const AttentionResults once(machine, reference, run, config);
    EXPECT_LE(largest_distance(once.distances_from(reference)), 1) << name;
    EXPECT_EQ(once.results(), AttentionResults(machine, reference, run, config).results()) << name;
  };
  for (const AttentionCase& one : attention_cases()) {
    AttentionProblem problem = one.problem;
    problem.backward = backward;
    try_config(AttentionReference(problem, run), one.config, one.name);
  }
  AttentionProblem usual;
  usual.backward = backward;
  usual.queries = usual.keys = 256;
  usual.inner = usual.values = 64;
  usual.rate = 0.1;
  const AttentionReference reference(usual, run);
  for (const int warps : {4, 8}) {
    for (const int row_tiles : {1, 2}) {
      for (const int tile_columns : {32, 64}) {
        for (const int stages : {1, 2, 3})
          try_config(reference, {warps, row_tiles, tile_columns, stages},
                     concat(warps, " ", row_tiles, " ", tile_columns, " ", stages));
      }
    }
    for (const int stages : {2, 3})
      try_config(reference, {warps, 1, 64, stages, true}, concat(warps, " ", stages, " wgmma"));
  }
}

TEST(CudaAttention, ForwardAgreesWithTheDefinition) { agrees_on_a_gpu(false); }
TEST(CudaAttention, BackwardAgreesWithTheDefinition) { agrees_on_a_gpu(true); }

// --- NVRTC ---

class AttentionCompile : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<GpuCompiler>> compiler = gpu_compiler_for_tests();
    if (!compiler) GTEST_SKIP() << "no CUDA compiler: " << to_string(compiler.error());
    compiler_ = std::move(*compiler);
  }
  void compile(const std::string& source, const std::string& architecture) {
    const Result<std::string> cubin = compiler_->compile(source, architecture);
    ASSERT_TRUE(cubin) << to_string(cubin.error());
    EXPECT_FALSE(cubin->empty());
  }

  std::unique_ptr<GpuCompiler> compiler_;
};

// All kernels are in one source, as in a plan.
TEST_F(AttentionCompile, AllCasesInOneSource) {
  const std::string prelude = gpu_prelude();
  std::string source;
  std::string groups;  // need Hopper
  size_t count = 0;
  for (const AttentionCase& one : attention_cases()) {
    AttentionProblem problem = one.problem;
    problem.backward = one.config.single_kernel || count % 2 == 0;
    (one.config.wgmma ? groups : source) +=
        with_kernel_name(launch_of(problem, one.config).kernel, concat("kernel_", count++));
  }
  compile(concat(prelude, source, groups), "sm_90");
  compile(concat(prelude, source), "sm_80");
}

TEST_F(AttentionCompile, TensorsOf64BitOffsets) {
  for (const bool backward : {false, true}) {
    AttentionProblem problem;
    problem.backward = backward;
    problem.batch = {4096, 1024};
    problem.queries = problem.keys = 512;
    problem.rate = 0.1;
    const Launch launch = launch_of(problem, {4, 1, 64, 2});
    EXPECT_NE(launch.kernel.find("using I = long long;"), std::string::npos);
    EXPECT_NE(launch.kernel.find("using Block = mr::u64;"), std::string::npos);
    compile(source_of(launch), "sm_90");
    compile(source_of(launch), "sm_80");
  }
}

}  // namespace
}  // namespace millrace
