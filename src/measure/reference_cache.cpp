#include "measure/reference_cache.h"

#include <utility>

namespace millrace {

KnownReference& ReferenceCache::add(KnownReference known) {
  KnownReference& added = entries_.add(std::move(known));
  while (bytes() > most_bytes_ && entries_.forget_oldest()) {
  }
  return added;
}

// Counted again each time, because the outputs of a large product come after its entry was added.
int64_t ReferenceCache::bytes() const {
  size_t elements = 0;
  for (const KnownReference& known : entries_.all()) {
    elements += numbers_in(known.data);
    for (const ReferenceData& other : known.others) elements += numbers_in(other);
  }
  return static_cast<int64_t>(elements * sizeof(double));
}

}  // namespace millrace
