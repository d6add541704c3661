#include "fusion/group_order.h"

#include <algorithm>

namespace millrace {
namespace {
constexpr size_t kGone = static_cast<size_t>(-1);
}  // namespace

GroupOrder::GroupOrder(size_t count, Successors successors)
    : successors_(std::move(successors)), position_(count), at_(count), marks_(count, 0) {
  for (size_t group = 0; group < count; ++group) position_[group] = at_[group] = group;
}

bool GroupOrder::mark_between(size_t first, size_t last) {
  ++mark_;
  bool reaches = false;
  std::vector<size_t> open = {first};
  while (!open.empty() && !reaches) {
    const size_t group = open.back();
    open.pop_back();
    successors_(group, [&](size_t next) {
      if (next == last) reaches = reaches || group != first;
      if (next == first || is_marked(next) || position_[next] >= position_[last]) return;
      marks_[next] = mark_;
      open.push_back(next);
    });
  }
  return reaches;
}

bool GroupOrder::merging_makes_cycle(size_t a, size_t b) {
  if (position_[b] < position_[a]) std::swap(a, b);
  return mark_between(a, b);
}

void GroupOrder::merge(size_t a, size_t b) {
  const size_t first = position_[a] < position_[b] ? a : b;
  const size_t last = first == a ? b : a;
  mark_between(first, last);
  // Of the groups between the two, those that do not depend on `first` move before the merged group, and the others
  // after it.
  const size_t begin = position_[first];
  const size_t end = position_[last];
  std::vector<size_t> before;
  std::vector<size_t> after;
  for (size_t k = begin + 1; k < end; ++k) {
    if (at_[k] == kGone) continue;
    (is_marked(at_[k]) ? after : before).push_back(at_[k]);
  }
  std::fill(at_.begin() + static_cast<std::ptrdiff_t>(begin), at_.begin() + static_cast<std::ptrdiff_t>(end) + 1,
            kGone);
  size_t next = begin;
  const auto append = [&](size_t group) {
    at_[next] = group;
    position_[group] = next++;
  };
  for (const size_t group : before) append(group);
  append(a);
  for (const size_t group : after) append(group);
  position_[b] = kGone;
}

void GroupOrder::assign(const std::vector<size_t>& groups) {
  at_ = groups;
  std::fill(position_.begin(), position_.end(), kGone);
  for (size_t k = 0; k < groups.size(); ++k) position_[groups[k]] = k;
}

}  // namespace millrace
