#include "device/cuda/kernel_parameters.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace millrace {
namespace {

constexpr size_t kWord = 8;  // a pointer, a double
static_assert(sizeof(void*) == kWord && sizeof(double) == kWord);

size_t at_least_one(size_t count) { return std::max<size_t>(count, 1); }

}  // namespace

KernelParameters::KernelParameters(size_t tensors, std::vector<LaunchNumber> numbers,
                                   const std::vector<uint32_t>& subsequences)
    : numbers_(std::move(numbers)),
      tensor_count_(tensors),
      values_at_(at_least_one(tensors) * kWord),
      state_at_(values_at_ + at_least_one(numbers_.size()) * kWord) {
  const size_t subsequences_at = state_at_ + 2 * kWord;
  const size_t end = subsequences_at + at_least_one(subsequences.size()) * sizeof(uint32_t);
  bytes_.resize((end + kWord - 1) / kWord * kWord);
  if (!subsequences.empty())
    std::memcpy(bytes_.data() + subsequences_at, subsequences.data(), subsequences.size() * sizeof(uint32_t));
}

void KernelParameters::set(void* const* tensors, const double* arguments, const void* state, void* scratch) {
  if (tensor_count_ > 0) std::memcpy(bytes_.data(), tensors, tensor_count_ * kWord);
  for (size_t k = 0; k < numbers_.size(); ++k) {
    const double value = value_of(numbers_[k], arguments);
    std::memcpy(bytes_.data() + values_at_ + k * kWord, &value, kWord);
  }
  std::memcpy(bytes_.data() + state_at_, &state, kWord);
  std::memcpy(bytes_.data() + state_at_ + kWord, &scratch, kWord);
}

double value_of(const LaunchNumber& number, const double* arguments) {
  return number.argument < 0 ? number.value : arguments[number.argument];
}

}  // namespace millrace
