#include "base/sha256.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace millrace {
namespace {

constexpr size_t kBlock = 64;  // bytes

// The constants K of the standard: from the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using State = Sha256::State;

uint32_t big_endian(std::string_view bytes) {
  uint32_t word = 0;
  for (const char byte : bytes.substr(0, 4)) word = word << 8 | static_cast<unsigned char>(byte);
  return word;
}

void add_block(State& state, std::string_view block) {
  std::array<uint32_t, 64> schedule{};
  for (size_t t = 0; t < 16; ++t) schedule[t] = big_endian(block.substr(4 * t));
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t near = schedule[t - 2];
    const uint32_t far = schedule[t - 15];
    schedule[t] = (std::rotr(near, 17) ^ std::rotr(near, 19) ^ near >> 10) + schedule[t - 7] +
                  (std::rotr(far, 7) ^ std::rotr(far, 18) ^ far >> 3) + schedule[t - 16];
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t choice = (e & f) ^ (~e & g);
    const uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    const uint32_t first =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + choice + kRounds[t] + schedule[t];
    const uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + majority;
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const State mixed = {a, b, c, d, e, f, g, h};
  for (size_t k = 0; k < state.size(); ++k) state[k] += mixed[k];
}

std::string hexadecimal(const State& state) {
  std::string text;
  for (const uint32_t word : state)
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15U];
  return text;
}

}  // namespace

void Sha256::add(std::string_view bytes) {
  bytes_ += bytes.size();
  const size_t missing = std::min(bytes.size(), (kBlock - rest_.size()) % kBlock);
  rest_ += bytes.substr(0, missing);
  bytes.remove_prefix(missing);
  if (rest_.size() == kBlock) {
    add_block(state_, rest_);
    rest_.clear();
  }
  for (; bytes.size() >= kBlock; bytes.remove_prefix(kBlock)) add_block(state_, bytes);
  rest_ += bytes;
}

std::string Sha256::digest() const {
  // The rest, a one bit, zeros, and the length in the last eight bytes: one block or two.
  State state = state_;
  std::string tail = rest_;
  tail += '\x80';
  while (tail.size() % kBlock != kBlock - 8) tail += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) tail += static_cast<char>(bytes_ * 8 >> shift & 0xFFU);
  for (size_t at = 0; at < tail.size(); at += kBlock) add_block(state, std::string_view(tail).substr(at));
  return hexadecimal(state);
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.digest();
}

}  // namespace millrace
