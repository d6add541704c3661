#include "measure/reference_cache.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

// Outputs of a large product come after the entry was added, so every output counts with its tolerances.
int64_t bytes_of(const KnownReference& known) {
  size_t elements = 0;
  for (const std::vector<double>& input : known.data.inputs) elements += input.size();
  for (const Expected& output : known.data.outputs) elements += output.values.size() + output.tolerances.size();
  return static_cast<int64_t>(elements * sizeof(double));
}

}  // namespace

KnownReference* ReferenceCache::find(const std::string& name) {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const KnownReference& known) { return known.name == name; });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return &entries_.front();
}

KnownReference& ReferenceCache::add(KnownReference known) {
  entries_.push_front(std::move(known));
  shrink();
  return entries_.front();
}

void ReferenceCache::shrink() {
  int64_t bytes = 0;
  for (const KnownReference& known : entries_) bytes += bytes_of(known);
  while (entries_.size() > 1 && bytes > most_bytes_) {
    bytes -= bytes_of(entries_.back());
    entries_.pop_back();
  }
}

}  // namespace millrace
