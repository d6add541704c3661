// One machine's share of the candidates, when several explore the same program. Depends on texts only, so that all of
// them agree on the shares. Test: tests/measure/shard_test.cpp
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/result.h"

namespace millrace {

struct Shard {
  uint64_t number = 1;  // from 1
  uint64_t count = 1;

  // Whether this candidate of a class of partitions is in this share.
  bool has(std::string_view partition, std::string_view candidate) const;
};

// Parses "3/16"; empty: everything.
Result<Shard> parse_shard(const std::string& text);

}  // namespace millrace
