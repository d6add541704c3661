#include "device/cpu/cpu_launch.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "device/cpu/copy_strided.h"
#include "device/cpu/kernel_arguments.h"

namespace millrace {
namespace {

constexpr int64_t kAlignment = 64;
constexpr size_t kMostNumbers = 256;

int64_t aligned_bytes(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

double value_of(const LaunchNumber& number, const LaunchState& state) {
  return number.argument < 0 ? number.value : state.arguments[number.argument];
}

// Offsets in scratch: each operand that is copied, the biases, then what the product itself needs.
constexpr size_t kBiases = 3;
constexpr size_t kProduct = 4;

std::array<int64_t, 5> places_in_scratch(const Launch& launch) {
  std::array<int64_t, 5> places{};
  for (size_t operand = 0; operand < 3; ++operand)
    places[operand + 1] = places[operand] + aligned_bytes(launch.copied_bytes(operand));
  const auto biases = static_cast<int64_t>(launch.vectors.size());
  places[kProduct] = places[kBiases] + (launch.packed_vectors ? aligned_bytes(launch.vector_bytes * biases) : 0);
  return places;
}

// Copies tensors together.
void pack(const std::vector<int>& stack, int64_t bytes_of_each, void* const* tensors, char* to) {
  const auto bytes = static_cast<size_t>(bytes_of_each);
  for (size_t k = 0; k < stack.size(); ++k) std::memcpy(to + k * bytes, tensors[stack[k]], bytes);
}

}  // namespace

int64_t scratch_bytes(const Launch& launch) {
  if (!launch.kernel.empty()) return launch.scratch_bytes;
  return places_in_scratch(launch)[kProduct] + scratch_bytes(launch.gemm);
}

Result<CpuLaunch> CpuLaunch::prepare(const Launch& launch, void* function) {
  CpuLaunch prepared;
  prepared.launch_ = launch;
  prepared.function_ = function;
  prepared.scratch_bytes_ = ::millrace::scratch_bytes(launch);
  if (launch.numbers.size() > kMostNumbers)
    return Error::make(ErrorKind::failed, "a kernel takes more than 256 numbers", "split the expression");
  if (!launch.kernel.empty()) return prepared;
  if (launch.gemm.adds != (launch.added >= 0))
    return Error::make(ErrorKind::failed, "a product lacks the tensor that it adds, or has one that it does not add");
  if (launch.vectors.empty() != (launch.gemm.vector == GemmVector::none))
    return Error::make(ErrorKind::failed, "a product lacks its bias, or has one that it does not add");
  Result<Gemm> gemm = Gemm::prepare(launch.gemm);
  if (!gemm) return gemm.error();
  prepared.gemm_ = std::move(*gemm);
  const std::array<int64_t, 5> places = places_in_scratch(launch);
  std::copy_n(places.begin(), prepared.copied_at_.size(), prepared.copied_at_.begin());
  prepared.gemm_scratch_at_ = places[kProduct];
  return prepared;
}

// Null if the product adds none.
const void* CpuLaunch::bias_at(void* const* tensors, char* scratch) const {
  if (launch_.vectors.empty()) return nullptr;
  if (!launch_.packed_vectors) return tensors[launch_.vectors.front()];
  char* const together = scratch + copied_at_[kBiases];
  pack(launch_.vectors, launch_.vector_bytes, tensors, together);
  return together;
}

void CpuLaunch::run(void* const* tensors, const LaunchState& state, char* scratch) const {
  if (!gemm_) {
    std::array<double, kMostNumbers> values{};
    for (size_t k = 0; k < launch_.numbers.size(); ++k) values[k] = value_of(launch_.numbers[k], state);
    const KernelArguments arguments{tensors,    values.data(), launch_.subsequences.data(),
                                    state.seed, state.step,    scratch};
    reinterpret_cast<KernelFunction>(function_)(&arguments);
    return;
  }
  std::array<char*, 3> at{};
  for (size_t operand = 0; operand < 3; ++operand) {
    const std::vector<int>& stack = launch_.operands[operand];
    at[operand] = static_cast<char*>(tensors[stack.front()]);
    if (operand < 2 && !launch_.unfolded[operand].empty()) {
      at[operand] = scratch + copied_at_[operand];
      copy_strided(launch_.unfolded[operand], bytes_of(launch_.gemm.type), tensors[stack.front()], at[operand],
                   launch_.gemm.threads);
    }
    if (!launch_.packed[operand]) continue;
    at[operand] = scratch + copied_at_[operand];
    if (operand != 2) pack(stack, launch_.operand_bytes[operand], tensors, at[operand]);
  }
  double alpha = 1;
  for (const LaunchNumber& number : launch_.numbers) alpha *= value_of(number, state);
  const void* const added = launch_.added < 0 ? nullptr : tensors[launch_.added];
  gemm_->run(alpha, at[0], at[1], at[2], scratch + gemm_scratch_at_, added, bias_at(tensors, scratch));
  if (!launch_.packed[2]) return;
  const auto bytes = static_cast<size_t>(launch_.operand_bytes[2]);
  const std::vector<int>& stack = launch_.operands[2];
  for (size_t k = 0; k < stack.size(); ++k) std::memcpy(tensors[stack[k]], at[2] + k * bytes, bytes);
}

}  // namespace millrace
