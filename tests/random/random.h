// A small generator of random numbers that gives the same ones on every platform, as std's distributions do not.
//
// Draw into a local first: the order in which a call's arguments are evaluated is the compiler's choice, and two draws
// in one expression would make the program depend on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace millrace::random_programs {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // splitmix64
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

  // 0 <= below(n) < n
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }

  bool chance(int percent) { return below(100) < percent; }

  // A multiple of 2^-bits in [-1, 1), bits at most 52.
  double uniform(int bits) {
    const auto steps = static_cast<double>(next() >> (63 - bits));
    return steps / static_cast<double>(uint64_t{1} << bits) - 1;
  }

  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
  }

  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i)
      std::swap(items[i - 1], items[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
  }

 private:
  uint64_t state_;
};

}  // namespace millrace::random_programs
