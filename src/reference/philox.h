// Random numbers as a function of where they are used: Philox4x32 (Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3", SC 2011), and Millrace's two uses of it. Every backend must generate exactly these dropout masks. Masks
// take seven rounds, the fewest that pass BigCrush there; inputs take ten. Test: tests/reference/philox_test.cpp.
//
// In both, key = (seed low 32 bits, seed high 32 bits).
// - A dropout's mask: let e be the row-major logical index of an element of the dropout's output, in any layout.
//   counter = (low 32 bits of e/8, high 32 bits of e/8, subsequence, step); its draw is the low half of word number
//   e%8/2 of the four where e is even, the high half where e is odd. The element is kept when draw >= threshold; the
//   mask is then 1/(1-probability), else 0. The threshold is probability · 2^16, probability in [0, 1), rounded half
//   up, and at most 2^16 - 1: the probability is exact to within 2^-17, and half as many blocks are needed as with
//   32-bit draws.
// - Drawing inputs: let e be the row-major index of an element of tensor number `tensor`.
//   counter = (low 32 bits of e/2, high 32 bits of e/2, tensor, 0x6d696c6c); its words are h, l = numbers 2·(e%2) and
//   2·(e%2)+1. The draw is (h · 2^21 + floor(l / 2^11)) · 2^-52 - 1, which is exact in float64 and in [-1, 1).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace millrace {

inline constexpr int kMaskRounds = 7;

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key,
                                          int rounds = 10) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

inline std::array<uint32_t, 2> philox_key(uint64_t seed) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
}

inline std::array<uint32_t, 4> mask_words(uint64_t seed, uint32_t step, uint32_t subsequence, uint64_t block) {
  return philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), subsequence, step},
                    philox_key(seed), kMaskRounds);
}

// Whether a mask keeps an element. `place`: which of its block's eight elements it is.
inline bool keeps(const std::array<uint32_t, 4>& words, uint64_t place, double threshold) {
  const uint32_t word = words[place / 2];
  return (place % 2 == 0 ? word & 0xffff : word >> 16) >= threshold;
}

inline double mask_threshold(double probability) { return std::min(std::floor(probability * 65536.0 + 0.5), 65535.0); }

inline bool dropout_keeps(uint64_t seed, uint32_t step, uint32_t subsequence, uint64_t element, double probability) {
  return keeps(mask_words(seed, step, subsequence, element / 8), element % 8, mask_threshold(probability));
}

// Calls take(element, kept) for the elements from begin to end.
template <class Take>
void for_each_kept(uint64_t seed, uint32_t step, uint32_t subsequence, uint64_t begin, uint64_t end, double probability,
                   const Take& take) {
  const double threshold = mask_threshold(probability);
  for (uint64_t block = begin / 8; 8 * block < end; ++block) {
    const std::array<uint32_t, 4> words = mask_words(seed, step, subsequence, block);
    for (uint64_t element = std::max(begin, 8 * block); element < std::min(end, 8 * block + 8); ++element)
      take(element, keeps(words, element % 8, threshold));
  }
}

inline std::array<uint32_t, 4> drawn_words(uint64_t seed, uint32_t tensor, uint64_t block) {
  return philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), tensor, 0x6d696c6c},
                    philox_key(seed));
}

// One of the two draws of a block. `place`: 0 or 1.
inline double uniform_at(const std::array<uint32_t, 4>& words, uint64_t place) {
  const uint64_t bits = (uint64_t{words[2 * place]} << 21) | (words[2 * place + 1] >> 11);
  return static_cast<double>(bits) * 0x1p-52 - 1.0;
}

inline double uniform_draw(uint64_t seed, uint32_t tensor, uint64_t element) {
  return uniform_at(drawn_words(seed, tensor, element / 2), element % 2);
}

// Calls take(element, draw) for the elements from begin to end.
template <class Take>
void for_each_draw(uint64_t seed, uint32_t tensor, uint64_t begin, uint64_t end, const Take& take) {
  for (uint64_t block = begin / 2; 2 * block < end; ++block) {
    const std::array<uint32_t, 4> words = drawn_words(seed, tensor, block);
    for (uint64_t element = std::max(begin, 2 * block); element < std::min(end, 2 * block + 2); ++element)
      take(element, uniform_at(words, element % 2));
  }
}

}  // namespace millrace
