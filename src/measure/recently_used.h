// Named entries in the order of their last use, so that the one used longest ago can be forgotten first. Entries stay
// where they are until they are forgotten. Tests: tests/measure/reference_cache_test.cpp,
// tests/measure/gpu_trial_test.cpp
#pragma once

#include <algorithm>
#include <list>
#include <string>
#include <utility>

namespace millrace {

// An Entry has a `name`.
template <class Entry>
class RecentlyUsed {
 public:
  // The entry of that name, which is now the newest; null if there is none.
  Entry* find(const std::string& name) {
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == name; });
    if (found == entries_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found);
    return &entries_.front();
  }

  // Adds an entry, which is now the newest.
  Entry& add(Entry entry) { return entries_.emplace_front(std::move(entry)); }

  void remove_newest() { entries_.pop_front(); }

  // Never the newest, which is in use. Returns false if there is no other.
  bool forget_oldest() {
    if (entries_.size() < 2) return false;
    entries_.pop_back();
    return true;
  }

  const std::list<Entry>& all() const { return entries_; }  // the newest first

 private:
  std::list<Entry> entries_;
};

}  // namespace millrace
