// cuDNN's fused attention on the emulated GPU: plain loops over the definition, in double precision.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/text.h"
#include "device/cuda/kernel_parameters.h"
#include "device/emulated/emulated_launch.h"
#include "device/emulated/emulated_memory.h"

namespace millrace::emulated {
namespace {

using Operand = AttentionCall::Operand;
using Pointers = std::array<char*, AttentionCall::kOperands>;

constexpr uintptr_t kOperandAlignment = 16;
constexpr double kFlopPerSecond = 1e13;

int64_t rows_of(const AttentionCall& call, Operand operand) {
  return call.rows_are_queries(operand) ? call.queries : call.keys;
}
int64_t heads_of(const AttentionCall& call, Operand operand) {
  return call.rows_are_queries(operand) ? call.heads : call.key_heads;
}
int64_t columns_of(const AttentionCall& call, Operand operand) {
  if (operand == Operand::log_sums) return 1;
  const bool inner =
      operand == Operand::q || operand == Operand::k || operand == Operand::d_q || operand == Operand::d_k;
  return inner ? call.inner : call.values;
}
StoredType type_of(const AttentionCall& call, Operand operand) {
  return operand == Operand::log_sums ? StoredType::f32 : call.type;
}

// Bytes up to and including the last element.
int64_t bytes_of_operand(const AttentionCall& call, Operand operand) {
  const AttentionCall::Strides& strides = call.strides[operand];
  const int64_t last = (call.batches - 1) * strides.batch + (heads_of(call, operand) - 1) * strides.head +
                       (rows_of(call, operand) - 1) * strides.row + (columns_of(call, operand) - 1) * strides.column;
  return (last + 1) * bytes_of(type_of(call, operand));
}

// One batch and key head: the gradients of k and v, and the rows of all heads that share them.
class Group {
 public:
  Group(const AttentionCall& call, const Pointers& at, double scale, int64_t batch, int64_t key_head)
      : call_(call), at_(at), scale_(scale), batch_(batch), key_head_(key_head) {}

  void run() {
    std::vector<double> d_k(static_cast<size_t>(call_.keys * call_.inner));
    std::vector<double> d_v(static_cast<size_t>(call_.keys * call_.values));
    const int64_t members = call_.heads / call_.key_heads;
    for (int64_t head = key_head_ * members; head < (key_head_ + 1) * members; ++head) {
      for (int64_t query = 0; query < call_.queries; ++query) {
        if (call_.backward) {
          add_gradients(head, query, d_k, d_v);
        } else {
          attend(head, query);
        }
      }
    }
    if (!call_.backward) return;
    put_all(Operand::d_k, d_k);
    put_all(Operand::d_v, d_v);
  }

 private:
  char* address(Operand operand, int64_t head, int64_t row, int64_t column) const {
    const AttentionCall::Strides& strides = call_.strides[operand];
    const int64_t offset = batch_ * strides.batch + head * strides.head + row * strides.row + column * strides.column;
    return at_[operand] + offset * bytes_of(type_of(call_, operand));
  }
  double get(Operand operand, int64_t head, int64_t row, int64_t column) const {
    uint64_t bits = 0;
    const StoredType type = type_of(call_, operand);
    std::memcpy(&bits, address(operand, head, row, column), static_cast<size_t>(bytes_of(type)));
    return decode(bits, type);
  }
  void put(Operand operand, int64_t head, int64_t row, int64_t column, double value) const {
    const StoredType type = type_of(call_, operand);
    const uint64_t bits = encode(value, type);
    std::memcpy(address(operand, head, row, column), &bits, static_cast<size_t>(bytes_of(type)));
  }
  void put_all(Operand operand, const std::vector<double>& values) const {
    const int64_t columns = columns_of(call_, operand);
    for (int64_t row = 0; row < call_.keys; ++row) {
      for (int64_t column = 0; column < columns; ++column)
        put(operand, key_head_, row, column, values[static_cast<size_t>(row * columns + column)]);
    }
  }

  int64_t visible_keys(int64_t query) const { return call_.causal ? std::min(call_.keys, query + 1) : call_.keys; }
  double score(int64_t head, int64_t query, int64_t key) const {
    double sum = 0;
    for (int64_t c = 0; c < call_.inner; ++c)
      sum += get(Operand::q, head, query, c) * get(Operand::k, key_head_, key, c);
    return sum * scale_;
  }

  void attend(int64_t head, int64_t query) const {
    std::vector<double> weights;
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t key = 0; key < visible_keys(query); ++key) {
      weights.push_back(score(head, query, key));
      largest = std::max(largest, weights.back());
    }
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    put(Operand::log_sums, head, query, 0, largest + std::log(sum));
    for (int64_t c = 0; c < call_.values; ++c) {
      double result = 0;
      for (size_t key = 0; key < weights.size(); ++key)
        result += weights[key] / sum * get(Operand::v, key_head_, static_cast<int64_t>(key), c);
      put(Operand::o, head, query, c, result);
    }
  }

  void add_gradients(int64_t head, int64_t query, std::vector<double>& d_k, std::vector<double>& d_v) const {
    double row_sum = 0;
    for (int64_t c = 0; c < call_.values; ++c)
      row_sum += get(Operand::d_o, head, query, c) * get(Operand::o, head, query, c);
    std::vector<double> d_q(static_cast<size_t>(call_.inner));
    const double log_sum = get(Operand::log_sums, head, query, 0);
    for (int64_t key = 0; key < visible_keys(query); ++key) {
      const double weight = std::exp(score(head, query, key) - log_sum);
      double gradient = -row_sum;
      for (int64_t c = 0; c < call_.values; ++c) {
        const double d_o = get(Operand::d_o, head, query, c);
        gradient += d_o * get(Operand::v, key_head_, key, c);
        d_v[static_cast<size_t>(key * call_.values + c)] += weight * d_o;
      }
      gradient *= weight * scale_;
      for (int64_t c = 0; c < call_.inner; ++c) {
        d_q[static_cast<size_t>(c)] += gradient * get(Operand::k, key_head_, key, c);
        d_k[static_cast<size_t>(key * call_.inner + c)] += gradient * get(Operand::q, head, query, c);
      }
    }
    for (int64_t c = 0; c < call_.inner; ++c) put(Operand::d_q, head, query, c, d_q[static_cast<size_t>(c)]);
  }

  const AttentionCall& call_;
  const Pointers& at_;
  double scale_;
  int64_t batch_;
  int64_t key_head_;
};

class AttentionLaunch final : public GpuLaunch {
 public:
  AttentionLaunch(std::shared_ptr<Stream> stream, const Launch& launch)
      : work_(std::move(stream)), call_(launch.attention), numbers_(launch.numbers) {}

  Result<Done> run(void* const* tensors, const double* arguments, const void*, void* scratch) override {
    double scale = 1;
    for (const LaunchNumber& number : numbers_) scale *= value_of(number, arguments);
    Pointers at{};
    for (size_t k = 0; k < at.size(); ++k) {
      if (call_.tensors[k] >= 0) at[k] = static_cast<char*>(tensors[call_.tensors[k]]);
      if (reinterpret_cast<uintptr_t>(at[k]) % kOperandAlignment != 0)
        return Error::make(ErrorKind::failed,
                           concat("cuDNN needs the tensors of an attention aligned to ", kOperandAlignment, " bytes"));
    }
    const double flop = 2.0 * static_cast<double>(call_.batches * call_.heads * call_.queries * call_.keys) *
                        static_cast<double>(call_.inner + call_.values);
    return work_.put("an attention", flop / kFlopPerSecond,
                     [call = call_, at, scale, scratch, bytes = scratch_bytes()] {
                       return compute(call, at, scale, static_cast<char*>(scratch), bytes);
                     });
  }

  // As the library does, it keeps the gradients of scores, in 16 bits, and a float for each row.
  int64_t scratch_bytes() const override {
    return call_.backward ? call_.batches * call_.heads * call_.queries * (2 * call_.keys + 4) : 0;
  }

 private:
  // Writes a number that counts runs into the last bits of 16-bit elements.
  static void change_last_bits(char* at) {
    static unsigned runs = 0;
    ++runs;
    for (unsigned bit = 0; bit < 16; ++bit, at += 2)
      *at = static_cast<char>((static_cast<unsigned>(*at) & ~1U) | (runs >> bit & 1U));
  }

  static Result<Done> compute(const AttentionCall& call, const Pointers& at, double scale, char* scratch,
                              int64_t scratch_bytes) {
    const Memory& memory = Memory::of_process();
    const auto illegal = [](const char* what) {
      return Error::make(
          ErrorKind::failed,
          concat("cannot run what is on the GPU's stream: ", "CUDA_ERROR_ILLEGAL_ADDRESS: an attention: ", what));
    };
    for (size_t k = 0; k < at.size(); ++k) {
      const auto operand = static_cast<Operand>(k);
      if (call.has(operand) && !memory.has(at[k], bytes_of_operand(call, operand)))
        return illegal("an operand is not in the device's memory");
    }
    if (scratch_bytes > 0 && !memory.has(scratch, scratch_bytes))
      return illegal("its scratch is not in the device's memory");
    if (scratch_bytes > 0) std::memset(scratch, 0xff, static_cast<size_t>(scratch_bytes));
    for (int64_t batch = 0; batch < call.batches; ++batch) {
      for (int64_t head = 0; head < call.key_heads; ++head) Group(call, at, scale, batch, head).run();
    }
    const Operand first = call.backward ? Operand::d_q : Operand::o;
    if (number_of("MILLRACE_EMULATED_CUDNN_UNSTABLE", 0) != 0) change_last_bits(at[first]);
    if (number_of("MILLRACE_EMULATED_CUDNN_WRONG", 0) != 0)
      std::memset(at[first], 0x3e, static_cast<size_t>(bytes_of(call.type)));
    return memory.is_intact() ? Result<Done>(Done{}) : illegal("it writes beside an allocation");
  }

  LaunchedWork work_;
  AttentionCall call_;
  std::vector<LaunchNumber> numbers_;
};

}  // namespace

Result<std::unique_ptr<GpuLaunch>> prepare_attention(std::shared_ptr<Stream> stream, const Launch& launch,
                                                     const GpuInfo& gpu) {
  const AttentionCall& call = launch.attention;
  if (gpu.cudnn.empty()) return Error::make(ErrorKind::unavailable, "cuDNN is missing: not emulated");
  for (size_t k = 0; k < AttentionCall::kOperands; ++k) {
    const bool there = call.has(static_cast<Operand>(k));
    if (there != (call.tensors[k] >= 0))
      return Error::make(ErrorKind::failed, "an attention lacks an operand, or has one of the other pass");
    if (there && call.strides[k].column != 1)
      return Error::make(ErrorKind::failed, "cuDNN needs attentions with contiguous columns");
  }
  if (call.key_heads < 1 || call.heads % call.key_heads != 0)
    return Error::make(ErrorKind::failed, "an attention whose heads are not a multiple of the keys' heads");
  if (number_of("MILLRACE_EMULATED_CUDNN_REFUSES", 0) != 0)
    return Error::make(ErrorKind::failed, "cuDNN cannot compute this attention: CUDNN_STATUS_NOT_SUPPORTED");
  return std::unique_ptr<GpuLaunch>(std::make_unique<AttentionLaunch>(std::move(stream), launch));
}

}  // namespace millrace::emulated
