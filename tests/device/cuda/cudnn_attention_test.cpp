// cuDNN's fused attention through device/gpu.h, on a real GPU and emulated, against its definition in double precision.
// Without a GPU or without cuDNN, the cases that need them are reported as skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/stored_type.h"
#include "base/text.h"
#include "device/emulated/emulated_gpu.h"
#include "device/gpu_for_tests.h"
#include "device/gpu_memory.h"

namespace millrace {
namespace {

using Operand = AttentionCall::Operand;
using Numbers = std::array<std::vector<double>, AttentionCall::kOperands>;

enum class AttentionMachine { cuda, emulated };

constexpr std::array<Operand, 4> kInputs = {Operand::q, Operand::k, Operand::v, Operand::d_o};
constexpr std::array<Operand, 5> kResults = {Operand::o, Operand::log_sums, Operand::d_q, Operand::d_k, Operand::d_v};

int64_t columns_of(const AttentionCall& call, Operand operand) {
  if (operand == Operand::log_sums) return 1;
  const bool inner =
      operand == Operand::q || operand == Operand::k || operand == Operand::d_q || operand == Operand::d_k;
  return inner ? call.inner : call.values;
}
int64_t rows_of(const AttentionCall& call, Operand operand) {
  return call.rows_are_queries(operand) ? call.queries : call.keys;
}
int64_t heads_of(const AttentionCall& call, Operand operand) {
  return call.rows_are_queries(operand) ? call.heads : call.key_heads;
}
int64_t elements_of(const AttentionCall& call, Operand operand) {
  return call.batches * heads_of(call, operand) * rows_of(call, operand) * columns_of(call, operand);
}
StoredType type_of(const AttentionCall& call, Operand operand) {
  return operand == Operand::log_sums ? StoredType::f32 : call.type;
}

// The order of an operand in memory: b, h, r (rows) and c (columns), outermost first.
void set_strides(AttentionCall& call, Operand operand, const std::string& order) {
  AttentionCall::Strides& strides = call.strides[operand];
  int64_t step = 1;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    switch (*axis) {
      case 'b': strides.batch = std::exchange(step, step * call.batches); break;
      case 'h': strides.head = std::exchange(step, step * heads_of(call, operand)); break;
      case 'r': strides.row = std::exchange(step, step * rows_of(call, operand)); break;
      default: strides.column = std::exchange(step, step * columns_of(call, operand));
    }
  }
}

AttentionCall make_call(int64_t heads, int64_t key_heads, int64_t queries, int64_t keys, const std::string& order) {
  AttentionCall call;
  call.batches = 2;
  call.heads = heads;
  call.key_heads = key_heads;
  call.queries = queries;
  call.keys = keys;
  call.inner = 64;
  call.values = 64;
  for (size_t k = 0; k < AttentionCall::kOperands; ++k) set_strides(call, static_cast<Operand>(k), order);
  return call;
}

// The attention by its definition, with bounds of what may be rounded.
class Definition {
 public:
  Definition(const AttentionCall& call, const Numbers& given, double scale)
      : call_(call), given_(given), scale_(scale) {
    for (const Operand operand : kResults) {
      values[operand].assign(given[operand].size(), 0);
      magnitudes[operand].assign(given[operand].size(), 0);
    }
    for (int64_t b = 0; b < call.batches; ++b) {
      for (int64_t h = 0; h < call.heads; ++h) {
        for (int64_t row = 0; row < call.queries; ++row) add_row(b, h, row);
      }
    }
  }

  Numbers values;
  Numbers magnitudes;  // of the sums

  size_t at(Operand operand, int64_t b, int64_t h, int64_t row, int64_t column) const {
    const AttentionCall::Strides& s = call_.strides[operand];
    const int64_t head = call_.rows_are_queries(operand) ? h : h * call_.key_heads / call_.heads;
    return static_cast<size_t>(b * s.batch + head * s.head + row * s.row + column * s.column);
  }

 private:
  double get(Operand operand, int64_t b, int64_t h, int64_t row, int64_t column) const {
    return given_[operand][at(operand, b, h, row, column)];
  }
  void add(Operand operand, size_t where, double value, double magnitude) {
    values[operand][where] += value;
    magnitudes[operand][where] += magnitude;
  }

  std::vector<double> weights_of(int64_t b, int64_t h, int64_t row) {
    std::vector<double> weights(static_cast<size_t>(call_.causal ? std::min(row + 1, call_.keys) : call_.keys));
    double sum = 0;
    for (size_t key = 0; key < weights.size(); ++key) {
      double score = 0;
      for (int64_t c = 0; c < call_.inner; ++c)
        score += get(Operand::q, b, h, row, c) * get(Operand::k, b, h, static_cast<int64_t>(key), c);
      sum += weights[key] = std::exp(scale_ * score);
    }
    for (double& weight : weights) weight /= sum;
    add(Operand::log_sums, at(Operand::log_sums, b, h, row, 0), std::log(sum), 1 + std::abs(std::log(sum)));
    return weights;
  }

  void add_row(int64_t b, int64_t h, int64_t row) {
    const std::vector<double> weights = weights_of(b, h, row);
    double row_sum = 0;
    double row_magnitude = 0;
    for (int64_t c = 0; c < call_.values; ++c) {
      const size_t where = at(Operand::o, b, h, row, c);
      for (size_t key = 0; key < weights.size(); ++key) {
        const double v = get(Operand::v, b, h, static_cast<int64_t>(key), c);
        add(Operand::o, where, weights[key] * v, weights[key] * std::abs(v));
      }
      row_sum += get(Operand::d_o, b, h, row, c) * values[Operand::o][where];
      row_magnitude += std::abs(get(Operand::d_o, b, h, row, c)) * magnitudes[Operand::o][where];
    }
    for (size_t key = 0; key < weights.size(); ++key)
      add_gradients(b, h, row, static_cast<int64_t>(key), weights[key], row_sum, row_magnitude);
  }

  void add_gradients(int64_t b, int64_t h, int64_t row, int64_t key, double weight, double row_sum,
                     double row_magnitude) {
    double gradient = -row_sum;
    double magnitude = row_magnitude;
    for (int64_t c = 0; c < call_.values; ++c) {
      const double d_o = get(Operand::d_o, b, h, row, c);
      const double v = get(Operand::v, b, h, key, c);
      gradient += d_o * v;
      magnitude += std::abs(d_o * v);
      add(Operand::d_v, at(Operand::d_v, b, h, key, c), weight * d_o, weight * std::abs(d_o));
    }
    for (int64_t c = 0; c < call_.inner; ++c) {
      const double q = scale_ * weight * get(Operand::q, b, h, row, c);
      const double k = scale_ * weight * get(Operand::k, b, h, key, c);
      add(Operand::d_q, at(Operand::d_q, b, h, row, c), gradient * k, magnitude * std::abs(k));
      add(Operand::d_k, at(Operand::d_k, b, h, key, c), gradient * q, magnitude * std::abs(q));
    }
  }

  const AttentionCall& call_;
  const Numbers& given_;
  double scale_;
};

class CudnnAttentionTest : public testing::TestWithParam<AttentionMachine> {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Gpu>> opened = GetParam() == AttentionMachine::cuda ? gpu_for_tests() : emulated::make_gpu();
    if (!opened) GTEST_SKIP() << to_string(opened.error());
    gpu_ = std::move(*opened);
    if (gpu_->info().cudnn.empty()) GTEST_SKIP() << "cuDNN is missing";
  }

  static void expect_done(const Result<Done>& done) { EXPECT_TRUE(done) << to_string(done.error()); }

  GpuMemory allocate(int64_t bytes) {
    Result<GpuMemory> memory = GpuMemory::allocate(*gpu_, bytes);
    EXPECT_TRUE(memory) << to_string(memory.error());
    expect_done(gpu_->fill(memory->data(), 0xff, bytes));
    return std::move(*memory);
  }

  void draw(const AttentionCall& call) {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    for (size_t k = 0; k < AttentionCall::kOperands; ++k) {
      const auto operand = static_cast<Operand>(k);
      const StoredType type = type_of(call, operand);
      const int64_t bytes = bytes_of(type);
      numbers_[k].assign(static_cast<size_t>(elements_of(call, operand)), 0);
      memory_[k] = allocate(elements_of(call, operand) * bytes);
      pointers_[k] = memory_[k].data();
      if (std::find(kInputs.begin(), kInputs.end(), operand) == kInputs.end()) continue;
      std::vector<char> stored(static_cast<size_t>(elements_of(call, operand) * bytes));
      for (size_t element = 0; element < numbers_[k].size(); ++element) {
        const uint64_t bits = encode(normal(random), type);
        numbers_[k][element] = decode(bits, type);
        std::memcpy(&stored[element * static_cast<size_t>(bytes)], &bits, static_cast<size_t>(bytes));
      }
      expect_done(gpu_->copy_in(pointers_[k], stored.data(), std::ssize(stored)));
      expect_done(gpu_->wait());
    }
  }

  std::vector<char> stored(const AttentionCall& call, Operand operand) {
    std::vector<char> found(static_cast<size_t>(elements_of(call, operand) * bytes_of(type_of(call, operand))));
    expect_done(gpu_->copy_out(found.data(), pointers_[operand], std::ssize(found)));
    return found;
  }

  // Runs one pass three times, the last time from a graph. Returns false if the library does not compute it.
  bool run(AttentionCall call, bool backward) {
    call.backward = backward;
    for (size_t k = 0; k < AttentionCall::kOperands; ++k)
      call.tensors[k] = call.has(static_cast<Operand>(k)) ? static_cast<int>(k) : -1;
    Launch launch;
    launch.attention = call;
    launch.numbers = {{0, 0}, {-1, 0.5}};
    Result<std::unique_ptr<GpuLaunch>> prepared = gpu_->prepare(launch, "");
    EXPECT_TRUE(prepared) << to_string(prepared.error());
    if (!prepared) return false;
    const GpuMemory scratch = allocate(std::max<int64_t>((*prepared)->scratch_bytes(), 1));
    const GpuMemory state = allocate(sizeof(GpuState));
    const auto enqueue = [&] { return (*prepared)->run(pointers_.data(), &factor_, state.data(), scratch.data()); };
    expect_done(enqueue());
    const Operand first = backward ? Operand::d_q : Operand::o;
    const std::vector<char> once = stored(call, first);
    expect_done(enqueue());
    EXPECT_EQ(stored(call, first), once) << "other bits the second time";
    Result<std::unique_ptr<GpuGraph>> graph = gpu_->record(enqueue);
    EXPECT_TRUE(graph) << to_string(graph.error());
    if (graph) expect_done((*graph)->replay());
    EXPECT_EQ(stored(call, first), once) << "other bits in a graph";
    return true;
  }

  // An operand of a product, its result, the row sums' o, and the results of heads before they are added are rounded:
  // four times the type's rounding of the sum's magnitude. The statistics are rounded to float only.
  void compare(const AttentionCall& call) {
    const Definition expected(call, numbers_, 0.5 * factor_);
    for (const Operand operand : kResults) {
      const StoredType type = type_of(call, operand);
      const double rounding = type == StoredType::f32 ? 0x1p-20 : type == StoredType::f16 ? 0x1p-11 : 0x1p-8;
      const std::vector<char> found = stored(call, operand);
      size_t wrong = 0;
      for (size_t k = 0; k < expected.values[operand].size(); ++k) {
        uint64_t bits = 0;
        const auto bytes = static_cast<size_t>(bytes_of(type));
        std::memcpy(&bits, &found[k * bytes], bytes);
        const double tolerance = 4 * rounding * expected.magnitudes[operand][k] + 0x1p-20;
        wrong += std::abs(decode(bits, type) - expected.values[operand][k]) <= tolerance ? 0U : 1U;
      }
      EXPECT_EQ(wrong, 0U) << "elements of operand " << operand;
    }
  }

  void expect_right(const AttentionCall& call) {
    draw(call);
    if (run(call, false) && run(call, true)) compare(call);
  }

  std::unique_ptr<Gpu> gpu_;
  Numbers numbers_;
  std::array<GpuMemory, AttentionCall::kOperands> memory_;
  std::array<void*, AttentionCall::kOperands> pointers_{};
  double factor_ = 0.25;  // an argument of the program
};
INSTANTIATE_TEST_SUITE_P(Cuda, CudnnAttentionTest, testing::Values(AttentionMachine::cuda));
INSTANTIATE_TEST_SUITE_P(Emulated, CudnnAttentionTest, testing::Values(AttentionMachine::emulated));

TEST_P(CudnnAttentionTest, InFloat16) { expect_right(make_call(2, 2, 64, 128, "brhc")); }

TEST_P(CudnnAttentionTest, CausalWithGroupedHeadsInBfloat16) {
  AttentionCall call = make_call(4, 2, 128, 128, "brhc");
  call.causal = true;
  call.type = StoredType::bf16;
  expect_right(call);
}

TEST_P(CudnnAttentionTest, InAnyOrderOfItsRows) {
  for (const char* order : {"bhrc", "rbhc", "hbrc"}) {
    SCOPED_TRACE(order);
    AttentionCall call = make_call(2, 1, 40, 128, order);
    call.causal = true;
    call.values = 32;
    for (size_t k = 0; k < AttentionCall::kOperands; ++k) set_strides(call, static_cast<Operand>(k), order);
    expect_right(call);
  }
}

TEST_P(CudnnAttentionTest, ColumnsMustBeContiguous) {
  AttentionCall call = make_call(2, 2, 64, 64, "bhcr");
  call.tensors = {0, 1, 2, 3, 4, -1, -1, -1, -1};
  Launch launch;
  launch.attention = call;
  const Result<std::unique_ptr<GpuLaunch>> prepared = gpu_->prepare(launch, "");
  ASSERT_FALSE(prepared);
  EXPECT_NE(to_string(prepared.error()).find("contiguous columns"), std::string::npos);
}

}  // namespace
}  // namespace millrace
