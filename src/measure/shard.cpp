#include "measure/shard.h"

#include <charconv>

#include "base/text.h"

namespace millrace {
namespace {

constexpr uint64_t kMostShards = 1 << 20;

// FNV-1a: the same on every machine and in every version.
uint64_t hash_of(std::string_view text, uint64_t hash) {
  constexpr uint64_t kPrime = 0x100000001b3;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return hash;
}

// The low bits of FNV change too regularly with the last characters.
uint64_t mixed(uint64_t hash) {
  constexpr uint64_t kMultiplier = 0xff51afd7ed558ccd;
  hash = (hash ^ (hash >> 33)) * kMultiplier;
  return hash ^ (hash >> 33);
}

}  // namespace

bool Shard::has(std::string_view partition, std::string_view candidate) const {
  constexpr uint64_t kOffset = 0xcbf29ce484222325;
  return mixed(hash_of(candidate, hash_of("\n", hash_of(partition, kOffset)))) % count == number - 1;
}

Result<Shard> parse_shard(const std::string& text) {
  if (text.empty()) return Shard{};
  Shard shard{0, 0};
  const char* const end = text.data() + text.size();
  const auto number = std::from_chars(text.data(), end, shard.number);
  if (number.ec == std::errc() && number.ptr != end && *number.ptr == '/') {
    const auto count = std::from_chars(number.ptr + 1, end, shard.count);
    if (count.ec != std::errc() || count.ptr != end) shard.count = 0;
  }
  if (shard.number >= 1 && shard.number <= shard.count && shard.count <= kMostShards) return shard;
  return Error::make(ErrorKind::bad_input, concat("--shard ", text, ": invalid share"),
                     "write NUMBER/COUNT, as in 3/16; count from 1");
}

}  // namespace millrace
