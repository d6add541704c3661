// Generated kernels of attentions, against the definition in double: emulated by a CPU, so that they are checked where
// there is no GPU; on one where there is; and compiled for those that we care for.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "base/long_run.h"
#include "base/sanitized.h"
#include "base/text.h"
#include "codegen/attention_numbers.h"
#include "codegen/cuda/attention.h"
#include "codegen/cuda/generate.h"
#include "codegen/lower.h"
#include "device/emulated/emulated_gpu.h"
#include "device/gpu_for_tests.h"
#include "device/gpu_kernel_cache.h"
#include "device/gpu_memory.h"

namespace millrace {
namespace {

using Lying = AttentionProblem::Lying;
using MaskOrder = AttentionProblem::MaskOrder;

struct Case {
  std::string name;
  AttentionConfig config;
  AttentionProblem problem;
};

std::string source_of(const Launch& launch) { return concat(cuda_hardware(), cuda_prelude(), launch.kernel); }

Launch launch_of(const AttentionProblem& problem, const AttentionConfig& config) {
  const MadeAttention made = made_attention(problem);
  return lower(made.graph, made.partition, made.layouts, config);
}

struct Machine {
  std::shared_ptr<Gpu> gpu;
  std::shared_ptr<GpuCompiler> compiler;
};

Machine emulated_machine() { return {emulated::make_gpu(), emulated::make_compiler()}; }

// Runs on outputs of NaN and returns them, one an operand that is written.
class AttentionResults {
 public:
  AttentionResults(Machine machine, const AttentionNumbers& numbers, const AttentionRun& run,
                   const AttentionConfig& config)
      : machine_(std::move(machine)),
        numbers_(numbers),
        partition_(numbers.made().partition),
        backward_(partition_.attention.backward) {
    const Launch launch = lower(numbers.made().graph, partition_, numbers.made().layouts, config);
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
    for (const Attention::Operand operand : AttentionNumbers::written(backward_)) {
      std::vector<std::byte> bytes(numbers_.bytes_of(operand).size());
      EXPECT_TRUE(
          machine_.gpu->copy_out(bytes.data(), memory_[position(operand)].data(), static_cast<int64_t>(bytes.size())));
      results_.push_back(numbers_.numbers_in(bytes, operand));
    }
    if (!numbers_.mask_bits().empty() && !backward_) {
      std::vector<std::byte> bits(numbers_.mask_bits().size());
      EXPECT_TRUE(
          machine_.gpu->copy_out(bits.data(), memory_[mask_position()].data(), static_cast<int64_t>(bits.size())));
      EXPECT_TRUE(bits == numbers_.mask_bits()) << "the mask";
    }
  }

  const std::vector<std::vector<double>>& results() const { return results_; }

  // How far it is from what others are: one an operand that is written.
  std::vector<double> distances_from(const AttentionNumbers& expected) const {
    std::vector<double> found;
    const std::vector<Attention::Operand> written = AttentionNumbers::written(backward_);
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
    if (const std::vector<std::byte>& bits = numbers_.mask_bits(); !bits.empty()) {
      const std::vector<std::byte> poison(bits.size(), std::byte{0xff});
      memory_[mask_position()] = memory_of(bits.size(), backward_ ? bits.data() : poison.data());
    }
    for (const Attention::Operand operand : AttentionNumbers::read(backward_)) {
      const std::vector<std::byte> bytes = numbers_.bytes_of(operand);
      memory_[position(operand)] = memory_of(bytes.size(), bytes.data());
    }
    for (const Attention::Operand operand : AttentionNumbers::written(backward_)) {
      const std::vector<std::byte> poison(numbers_.bytes_of(operand).size(), std::byte{0xff});
      memory_[position(operand)] = memory_of(poison.size(), poison.data());
    }
  }

  Machine machine_;  // goes behind its memory
  const AttentionNumbers& numbers_;
  const Partition& partition_;
  bool backward_;
  std::vector<GpuMemory> memory_;
  std::vector<std::vector<double>> results_;
};

// Nothing is infinitely far: the launch failed.
double farthest(const std::vector<double>& distances) {
  return distances.empty() ? std::numeric_limits<double>::infinity()
                           : *std::max_element(distances.begin(), distances.end());
}

// Name, way, and what differs from the usual problem.
template <class Set>
Case of(std::string name, const AttentionConfig& config, const Set& set) {
  Case made{std::move(name), config, {}};
  set(made.problem);
  return made;
}

// As in the layer of bench/programs/bert_encoder.py, but for sizes.
void as_the_layers(AttentionProblem& p) {
  p.batch = {2};
  p.queries = p.keys = 128;
  p.inner = p.values = 64;
  p.rate = 0.1;
  p.mask_bits = true;
}

std::vector<Case> cases() {
  return {
      of("plain", {1, 1, 32, 1}, [](AttentionProblem&) {}),
      of("several panels and rests", {2, 1, 32, 2},
         [](AttentionProblem& p) {
           p.queries = 70;
           p.keys = 100;
           p.dtype = DType::bfloat16;
         }),
      of("three stages, two tiles, inner and values apart", {2, 2, 64, 3},
         [](AttentionProblem& p) {
           p.batch = {2};
           p.queries = 75;
           p.keys = 203;
           p.inner = 48;
           p.values = 16;
           p.set_lying(Lying::rows_batch_columns);
         }),
      of("causal", {2, 1, 32, 2},
         [](AttentionProblem& p) {
           p.causal = true;
           p.queries = p.keys = 91;
           p.set_lying(Lying::reversed_batch_rows_columns);
         }),
      of("causal, more keys than queries, a negative scale", {2, 1, 64, 2},
         [](AttentionProblem& p) {
           p.causal = true;
           p.queries = 50;
           p.keys = 130;
           p.scales = {0.5, -0.25};
         }),
      of("causal, more queries than keys, a scale of nothing", {1, 1, 32, 2},
         [](AttentionProblem& p) {
           p.causal = true;
           p.queries = 130;
           p.keys = 50;
           p.scales = {0};
         }),
      of("dropout in blocks of keys", {2, 1, 32, 2},
         [](AttentionProblem& p) {
           p.rate = 0.3;
           p.set_lying(Lying::rows_batch_columns);
         }),
      of("dropout and causal, two tiles", {1, 2, 64, 1},
         [](AttentionProblem& p) {
           p.rate = 0.1;
           p.causal = true;
           p.keys = 72;
           p.values = 64;
           p.dtype = DType::bfloat16;
           p.set_lying(Lying::reversed_batch_rows_columns);
         }),
      of("dropout, keys in no blocks", {2, 1, 32, 2},
         [](AttentionProblem& p) {
           p.rate = 0.3;
           p.keys = 45;
         }),
      of("dropout, neighbours are queries", {2, 1, 32, 2},
         [](AttentionProblem& p) {
           p.rate = 0.3;
           p.mask_order = MaskOrder::queries_last;
         }),
      of("dropout, neighbours are heads", {2, 1, 32, 1},
         [](AttentionProblem& p) {
           p.rate = 0.3;
           p.mask_order = MaskOrder::batch_last;
           p.scales = {};
         }),
      of("rows lie together", {2, 1, 32, 2},
         [](AttentionProblem& p) {
           p.set_lying(Lying::columns_batch_rows);
           p.rate = 0.3;
           p.queries = 72;
           p.keys = 104;
           p.values = 48;
         }),
      of("rows lie together, causal, no dropout", {1, 2, 64, 1},
         [](AttentionProblem& p) {
           p.set_lying(Lying::batch_columns_rows);
           p.causal = true;
           p.dtype = DType::bfloat16;
           p.queries = p.keys = 88;
         }),
      of("rows of what is given lie together", {2, 1, 64, 2},
         [](AttentionProblem& p) {
           p.lying = Lying::columns_batch_rows;
           p.rate = 0.3;
           p.mask_order = MaskOrder::queries_last;
         }),
      of("rows of results lie together", {2, 1, 32, 3},
         [](AttentionProblem& p) {
           p.results = Lying::batch_columns_rows;
           p.rate = 0.3;
         }),
      of("rows of gradients lie together", {2, 1, 32, 2},
         [](AttentionProblem& p) {
           p.gradients = Lying::batch_columns_rows;
           p.lying = Lying::rows_batch_columns;
           p.rate = 0.3;
         }),
      of("no batch, one query", {1, 1, 32, 2},
         [](AttentionProblem& p) {
           p.batch = {};
           p.queries = 1;
           p.keys = 24;
           p.rate = 0.5;
           p.inner = p.values = 128;
         }),
      of("masks as bits", {2, 1, 32, 2},
         [](AttentionProblem& p) {
           p.rate = 0.3;
           p.mask_bits = true;
           p.keys = 96;
         }),
      of("masks as bits that are all set", {2, 1, 32, 2},
         [](AttentionProblem& p) {
           p.rate = 1e-6;  // no draw is below what it rounds to
           p.mask_bits = true;
           p.keys = 64;
         }),
      of("masks as bits, rows lie together, two tiles", {1, 2, 64, 2},
         [](AttentionProblem& p) {
           p.rate = 0.3;
           p.mask_bits = true;
           p.set_lying(Lying::columns_batch_rows);
           p.queries = 72;
           p.keys = 96;
         }),
      of("masks as bits, groups", {4, 1, 64, 2, true},
         [](AttentionProblem& p) {
           p.batch = {2};
           p.rate = 0.1;
           p.mask_bits = true;
           p.queries = 64;
           p.keys = 128;
           p.inner = p.values = 64;
         }),
      of("masks as bits, groups, blocks that are not whole", {8, 1, 64, 2, true},
         [](AttentionProblem& p) {
           p.batch = {2};
           p.rate = 0.3;
           p.mask_bits = true;
           p.queries = p.keys = 64;
           p.inner = p.values = 64;
           p.dtype = DType::bfloat16;
         }),
      of("backward in one", {4, 1, 32, 2, false, false, true},
         [](AttentionProblem& p) {
           p.queries = 70;
           p.keys = 50;
           p.inner = 32;
           p.values = 48;
           p.rate = 0.3;
         }),
      of("backward in one, rows without a key, scores far below zero", {1, 1, 32, 2, false, false, true},
         [](AttentionProblem& p) {
           p.keys = 1;
           p.scales = {100};
         }),
      of("backward in one, causal, two tiles, rows lie together", {2, 2, 64, 1, false, false, true},
         [](AttentionProblem& p) {
           p.causal = true;
           p.queries = p.keys = 56;
           p.dtype = DType::bfloat16;
           p.scales = {-0.25};
           p.set_lying(Lying::columns_batch_rows);
         }),
      of("backward in one, groups", {8, 1, 64, 2, true, true, true}, as_the_layers),
      of("backward in one, groups, rows lie together", {8, 1, 64, 2, true, true, true},
         [](AttentionProblem& p) {
           p.batch = {2};
           p.queries = 64;
           p.keys = 128;
           p.inner = 128;
           p.values = 64;
           p.rate = 0.3;
           p.set_lying(Lying::batch_columns_rows);
         }),
      of("backward in one, groups, rows without a key", {8, 1, 64, 2, true, true, true},
         [](AttentionProblem& p) {
           p.batch = {2};
           p.queries = 192;
           p.keys = 64;
           p.inner = p.values = 64;
           p.dtype = DType::bfloat16;
         }),
      of("rows in shared memory", {4, 1, 64, 2, true, true}, as_the_layers),
      of("rows in shared memory, causal, rests, a negative scale", {4, 1, 64, 3, true, true},
         [](AttentionProblem& p) {
           p.batch = {2};
           p.causal = true;
           p.queries = p.keys = 91;
           p.inner = p.values = 64;
           p.scales = {-0.25};
           p.rate = 0.3;
           p.dtype = DType::bfloat16;
         }),
      of("rows in shared memory, backward in one, causal, a negative scale", {8, 1, 64, 2, true, true, true},
         [](AttentionProblem& p) {
           p.batch = {2};
           p.causal = true;
           p.queries = p.keys = 104;
           p.inner = p.values = 64;
           p.scales = {-0.25};
           p.rate = 0.3;
         }),
      of("backward in one, groups, one of them", {4, 1, 64, 2, true, true, true},
         [](AttentionProblem& p) {
           p.batch = {2};
           p.queries = p.keys = 64;
           p.inner = 128;
           p.values = 64;
           p.rate = 0.1;
         }),
      of("rows in shared memory, rows lie together", {8, 1, 64, 2, true, true},
         [](AttentionProblem& p) {
           p.batch = {2};
           p.set_lying(Lying::columns_batch_rows);
           p.queries = 72;
           p.keys = 200;
           p.inner = 128;
           p.values = 64;
           p.rate = 0.3;
         }),
      of("rows in shared memory, of what is given lie together", {4, 1, 64, 1, true, true},
         [](AttentionProblem& p) {
           p.batch = {2};
           p.lying = Lying::batch_columns_rows;
           p.queries = p.keys = 64;
           p.inner = 64;
           p.values = 128;
         }),
      of("groups", {4, 1, 64, 2, true}, [](AttentionProblem& p) { p.queries = p.keys = p.inner = p.values = 64; }),
      of("groups, several panels, three stages", {4, 1, 64, 3, true},
         [](AttentionProblem& p) {
           p.batch = {2};
           p.queries = 192;
           p.keys = 256;
           p.inner = 64;
           p.values = 128;
           p.dtype = DType::bfloat16;
           p.set_lying(Lying::rows_batch_columns);
         }),
      of("groups, dropout, a negative scale", {4, 1, 64, 2, true},
         [](AttentionProblem& p) {
           p.batch = {2};
           p.rate = 0.3;
           p.queries = 64;
           p.keys = 128;
           p.inner = 128;
           p.values = 64;
           p.scales = {-0.25};
         }),
      of("groups, rows lie together", {8, 1, 64, 2, true},
         [](AttentionProblem& p) {
           p.batch = {2};
           p.set_lying(Lying::columns_batch_rows);
           p.rate = 0.3;
           p.queries = 128;
           p.keys = 64;
           p.inner = p.values = 64;
         }),
      of("groups, rows of what is given lie together", {4, 1, 64, 2, true},
         [](AttentionProblem& p) {
           p.batch = {2};
           p.lying = Lying::batch_columns_rows;
           p.rate = 0.1;
           p.queries = p.keys = 64;
           p.inner = 64;
           p.values = 128;
           p.dtype = DType::bfloat16;
         }),
      of("groups, rows of results lie together", {4, 1, 64, 2, true},
         [](AttentionProblem& p) {
           p.batch = {2};
           p.results = Lying::columns_batch_rows;
           p.rate = 0.3;
           p.mask_order = MaskOrder::queries_last;
           p.queries = p.keys = 64;
           p.inner = 128;
           p.values = 64;
         }),
  };
}

class AttentionKernel : public testing::TestWithParam<bool> {};

// Every one in a long run, otherwise every fourth.
TEST_P(AttentionKernel, AgreesWithTheDefinition) {
  const std::vector<Case> all = cases();
  for (size_t k = 0; k < all.size(); k += is_long_run() ? 1 : 4) {
    const Case& one = all[k];
    AttentionProblem problem = one.problem;
    problem.backward = GetParam();
    const AttentionRun run;
    const AttentionNumbers numbers(problem, run);
    const AttentionResults emulated(emulated_machine(), numbers, run, one.config);
    EXPECT_LE(farthest(emulated.distances_from(numbers)), 1) << one.name;
  }
}

// Any sizes, layouts, masks, scales and ways.
Case drawn_case(uint64_t seed) {
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
  const std::vector<Lying> all = {Lying::batch_rows_columns, Lying::rows_batch_columns,
                                  Lying::reversed_batch_rows_columns, Lying::columns_batch_rows,
                                  Lying::batch_columns_rows};
  p.lying = one_of(all);
  p.results = one_of(all);
  p.gradients = one_of(all);
  const bool together = std::max({p.lying, p.results, p.gradients}) >= Lying::columns_batch_rows;  // rows, somewhere
  const int64_t step = together || below(2) == 0 ? 8 : 1;
  p.queries = step * (1 + below(100 / step));
  p.keys = step * (1 + below(140 / step));
  p.inner = 16 * (1 + below(4));
  p.values = 16 * (1 + below(4));
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
    config.single_kernel = can_be_single_kernel(made_attention(backward).partition.attention, config);
  }
  p.mask_bits = p.rate > 0 && !p.causal && p.mask_order == MaskOrder::keys_last && p.keys % 32 == 0 &&
                config.warps * config.row_tiles > 1;
  return {concat("drawn with seed ", seed, ": ", print_config(config), "; ", p.queries, " x ", p.keys, ", ", p.inner,
                 " and ", p.values, p.causal ? ", causal" : "", p.backward ? ", backward" : ", forward"),
          config, p};
}

TEST(DrawnAttentionKernel, AgreesWithTheDefinition) {
  const uint64_t usual = is_long_run() ? 12 : 4;
  const char* const asked = std::getenv("MILLRACE_RANDOM_KERNELS");
  const uint64_t count = asked == nullptr ? tried_of(usual) : std::stoull(asked);
  for (uint64_t seed = 1; seed <= count; ++seed) {
    const Case one = drawn_case(seed);
    const AttentionRun run{seed, static_cast<uint32_t>(seed)};
    const AttentionNumbers numbers(one.problem, run, static_cast<unsigned>(seed));
    const AttentionResults results(emulated_machine(), numbers, run, one.config);
    EXPECT_LE(farthest(results.distances_from(numbers)), 1) << one.name;
  }
}

// What a kernel could get wrong is further away than what is allowed.
TEST_P(AttentionKernel, WrongOnesAreFarAway) {
  AttentionProblem problem;
  problem.backward = GetParam();
  problem.rate = 0.25;
  problem.causal = true;
  const AttentionRun run;
  const AttentionNumbers numbers(problem, run);
  const AttentionResults emulated(emulated_machine(), numbers, run, {2, 1, 32, 2});
  ASSERT_LE(farthest(emulated.distances_from(numbers)), 1);
  const auto far_from = [&](const AttentionProblem& other, const AttentionRun& other_run) {
    return farthest(emulated.distances_from(AttentionNumbers(other, other_run)));
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

TEST_P(AttentionKernel, TheSameBitsEveryTime) {
  AttentionProblem problem;
  problem.backward = GetParam();
  problem.rate = 0.25;
  const AttentionRun run;
  const AttentionNumbers numbers(problem, run);
  EXPECT_EQ(AttentionResults(emulated_machine(), numbers, run, {2, 1, 32, 2}).results(),
            AttentionResults(emulated_machine(), numbers, run, {2, 1, 32, 2}).results());
}

// A NaN or an infinity anywhere shows in every result that it has a partition in.
TEST_P(AttentionKernel, NothingHidesNotANumber) {
  const bool backward = GetParam();
  AttentionProblem problem;
  problem.backward = backward;
  problem.batch = {1};
  problem.rate = 0.25;
  const AttentionRun run;
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const Attention::Operand operand : AttentionNumbers::read(backward)) {
      if (operand == Attention::log_sums && std::isinf(bad)) continue;  // p is 0 then, by definition
      AttentionNumbers numbers(problem, run);
      numbers[operand].values[3] = bad;
      const AttentionResults emulated(emulated_machine(), numbers, run, {1, 1, 32, 2});
      size_t bad_results = 0;
      for (const std::vector<double>& result : emulated.results())
        bad_results += static_cast<size_t>(
            std::count_if(result.begin(), result.end(), [](double x) { return !std::isfinite(x); }));
      EXPECT_GT(bad_results, 0U) << "operand " << operand << " " << bad;
    }
  }
}

TEST_P(AttentionKernel, SharedMemoryIsWhatTheGridAsksFor) {
  AttentionProblem problem;
  problem.backward = GetParam();
  problem.queries = problem.keys = 192;
  problem.inner = problem.values = 64;
  const Attention attention = made_attention(problem).partition.attention;
  for (const AttentionConfig& config :
       {AttentionConfig{4, 1, 64, 2}, AttentionConfig{8, 1, 32, 3}, AttentionConfig{4, 1, 64, 3, true},
        AttentionConfig{8, 2, 64, 2, false, false, true}}) {
    for (const GpuGrid& grid : launch_of(problem, config).grids) {
      EXPECT_EQ(grid.shared_bytes, attention_shared_bytes(attention, config));
      EXPECT_EQ(grid.threads, 32 * config.warps);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, AttentionKernel, testing::Values(false, true),
                         [](const testing::TestParamInfo<bool>& pass) {
                           return std::string(pass.param ? "Backward" : "Forward");
                         });

// Kernels take long to compile, and layouts are many.
TEST_P(AttentionKernel, OneForAllLayoutsWithTheSameNeighbours) {
  AttentionProblem problem;
  problem.backward = GetParam();
  const auto text_of = [&](Lying lying) {
    problem.set_lying(lying);
    return launch_of(problem, {4, 1, 64, 2}).kernel;
  };
  const std::string by_rows = text_of(Lying::batch_rows_columns);
  EXPECT_EQ(by_rows, text_of(Lying::rows_batch_columns));
  EXPECT_EQ(by_rows, text_of(Lying::reversed_batch_rows_columns));
  const std::string by_columns = text_of(Lying::batch_columns_rows);
  EXPECT_EQ(by_columns, text_of(Lying::columns_batch_rows));
  EXPECT_NE(by_rows, by_columns);
}

// --- A GPU ---

// What the emulated GPU does, and ways that keep a real one busy; the same bits every time.
void agrees_on_a_gpu(bool backward) {
  Result<std::unique_ptr<Gpu>> gpu = gpu_for_tests();
  if (!gpu) GTEST_SKIP() << "no GPU: " << to_string(gpu.error());
  Result<std::unique_ptr<GpuCompiler>> compiler = gpu_compiler_for_tests();
  ASSERT_TRUE(compiler) << to_string(compiler.error());
  const Machine machine{std::move(*gpu), std::move(*compiler)};
  const AttentionRun run;
  const bool groups = machine.gpu->info().has_group_products();
  const auto try_config = [&](const AttentionNumbers& numbers, const AttentionConfig& config, const std::string& name) {
    if (config.wgmma && !groups) return;
    const AttentionResults once(machine, numbers, run, config);
    EXPECT_LE(farthest(once.distances_from(numbers)), 1) << name;
    EXPECT_EQ(once.results(), AttentionResults(machine, numbers, run, config).results()) << name;
  };
  for (const Case& one : cases()) {
    AttentionProblem problem = one.problem;
    problem.backward = backward;
    try_config(AttentionNumbers(problem, run), one.config, one.name);
  }
  AttentionProblem usual;
  usual.backward = backward;
  usual.queries = usual.keys = 256;
  usual.inner = usual.values = 64;
  usual.rate = 0.1;
  const AttentionNumbers numbers(usual, run);
  for (const int warps : {4, 8}) {
    for (const int tiles : {1, 2}) {
      for (const int panel : {32, 64}) {
        for (const int stages : {1, 2, 3})
          try_config(numbers, {warps, tiles, panel, stages}, concat(warps, " ", tiles, " ", panel, " ", stages));
      }
    }
    for (const int stages : {2, 3})
      try_config(numbers, {warps, 1, 64, stages, true}, concat(warps, " ", stages, " groups"));
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

// Several in one source, as a plan has them.
TEST_F(AttentionCompile, EveryKindTogether) {
  const std::string prelude = concat(cuda_hardware(), cuda_prelude());
  std::string source;
  std::string groups;  // Hopper's
  size_t count = 0;
  for (const Case& one : cases()) {
    AttentionProblem problem = one.problem;
    problem.backward = one.config.single_kernel || count % 2 == 0;
    (one.config.wgmma ? groups : source) +=
        with_kernel_name(launch_of(problem, one.config).kernel, concat("kernel_", count++));
  }
  compile(concat(prelude, source, groups), "sm_90");
  compile(concat(prelude, source), "sm_80");
}

TEST_F(AttentionCompile, TensorsBeyondAnInteger) {
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
