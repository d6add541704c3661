#include "measure/guarded_memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/parallel.h"

namespace millrace {
namespace {

constexpr int64_t kRedZone = 4096;  // bytes; also the alignment of what follows it
// Read as a number, it is huge or NaN in every floating-point type: a candidate that reads it computes wrong values.
constexpr unsigned char kUntouched = 0x7f;

bool is_untouched(const char* zone) {
  return std::all_of(zone, zone + kRedZone, [](char byte) { return byte == static_cast<char>(kUntouched); });
}

// Each step maps states and words one to one, so a change of one word changes the result.
uint64_t mixed(uint64_t state, uint64_t word) {
  state = (state ^ word) * 0x9E3779B97F4A7C15;
  return state ^ (state >> 32);
}

uint64_t fingerprint_of_slice(const char* bytes, int64_t count, uint64_t start) {
  std::array<uint64_t, 4> lanes = {start, start + 1, start + 2, start + 3};  // independent, so that they overlap
  constexpr auto kStep = static_cast<int64_t>(sizeof(lanes));
  for (; count >= kStep; count -= kStep, bytes += kStep) {
    std::array<uint64_t, 4> words{};
    std::memcpy(words.data(), bytes, sizeof(words));
    for (size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] = mixed(lanes[lane], words[lane]);
  }
  for (; count > 0; --count, ++bytes) lanes[0] = mixed(lanes[0], static_cast<unsigned char>(*bytes));
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

}  // namespace

GuardedMemory::GuardedMemory(int64_t bytes) : size_(bytes), memory_(bytes + 2 * kRedZone) {
  std::memset(memory_.data(), kUntouched, kRedZone);
  std::memset(data() + size_, kUntouched, kRedZone);
}

char* GuardedMemory::data() const { return memory_.data() + kRedZone; }

bool GuardedMemory::is_intact() const { return is_untouched(memory_.data()) && is_untouched(data() + size_); }

uint64_t fingerprint(const void* data, int64_t bytes) {
  constexpr int64_t kSlice = 1 << 20;  // bytes per thread
  const char* const begin = static_cast<const char*>(data);
  std::atomic<uint64_t> sum = 0;
  in_parallel(bytes, kSlice, [&](int64_t first, int64_t end) {
    sum += fingerprint_of_slice(begin + first, end - first, static_cast<uint64_t>(first));
  });
  return sum;
}

}  // namespace millrace
