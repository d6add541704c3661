// Reference data of the partitions tried last, because an exploration goes from partition to partition and returns. It
// is limited in bytes; the data that was used longest ago goes first. Test: tests/measure/reference_cache_test.cpp
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "measure/recently_used.h"
#include "measure/reference_data.h"

namespace millrace {

struct KnownReference {
  std::string name;  // reference_data_name()
  ReferenceData data;
  std::vector<ReferenceData> others;  // of a small partition: from other draws
  bool by_peer = false;  // too large for the reference: checked at small extents, and against the first that passed
  bool has_peer = false;
};

class ReferenceCache {
 public:
  // Holds at most `bytes`, but always the newest entry.
  explicit ReferenceCache(int64_t bytes) : most_bytes_(bytes) {}

  // Null if it is not there.
  KnownReference* find(const std::string& name) { return entries_.find(name); }
  // The entry stays where it is until another one is added.
  KnownReference& add(KnownReference known);

 private:
  int64_t bytes() const;

  int64_t most_bytes_;
  RecentlyUsed<KnownReference> entries_;
};

}  // namespace millrace
