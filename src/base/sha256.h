// SHA-256 (FIPS 180-4): names and verifies files on disk. Tests: tests/base/sha256_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

// The digest of bytes that are added step by step. A copy continues from the state of the original.
class Sha256 {
 public:
  void add(std::string_view bytes);
  std::string digest() const;

  using State = std::array<uint32_t, 8>;

 private:
  // H(0) of the standard: from the square roots of the first eight primes.
  State state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string rest_;  // less than a block
  uint64_t bytes_ = 0;
};

// The digest of `bytes` as 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace millrace
