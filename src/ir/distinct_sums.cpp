#include "ir/distinct_sums.h"

#include <algorithm>
#include <numeric>

namespace millrace {
namespace {

using Progressions = std::vector<Progression>;

constexpr int64_t kMostCounted = 1 << 16;

int64_t reach_of(const Progression& one) { return one.stride * (one.points - 1); }

int64_t reach_of(const Progressions& all) {
  int64_t reach = 0;
  for (const Progression& one : all) reach += reach_of(one);
  return reach;
}

int64_t common_stride(Progressions::const_iterator begin, Progressions::const_iterator end) {
  int64_t stride = 0;
  for (; begin != end; ++begin) stride = std::gcd(stride, begin->stride);
  return stride;
}

// Whether the sums are all multiples of `unit` up to the largest. The strides are sorted.
bool leaves_no_gap(const Progressions& all, int64_t unit) {
  int64_t reach = 0;
  for (const Progression& one : all) {
    if (one.stride > reach + unit) return false;
    reach += reach_of(one);
  }
  return true;
}

int64_t count_each(const Progressions& all, int64_t unit) {
  std::vector<bool> sums(static_cast<size_t>(reach_of(all) / unit + 1), false);
  sums[0] = true;
  for (const Progression& one : all) {
    const auto step = static_cast<size_t>(one.stride / unit);
    std::vector<int64_t> steps_since(sums.size(), one.points);  // steps from a sum that does not use this progression
    for (size_t at = 0; at < sums.size(); ++at) {
      if (sums[at])
        steps_since[at] = 0;
      else if (at >= step)
        steps_since[at] = steps_since[at - step] + 1;
      sums[at] = steps_since[at] < one.points;
    }
  }
  return std::count(sums.begin(), sums.end(), true);
}

int64_t sums_of_overlapping(const Progressions& all) {
  const int64_t unit = common_stride(all.begin(), all.end());
  const int64_t multiples = reach_of(all) / unit + 1;
  if (leaves_no_gap(all, unit)) return multiples;
  if (multiples <= kMostCounted) return count_each(all, unit);
  int64_t product = 1;
  for (const Progression& one : all) product *= one.points;
  return std::min(product, multiples);
}

}  // namespace

int64_t distinct_sums(Progressions progressions) {
  for (const Progression& one : progressions) {
    if (one.points <= 0) return 0;
  }
  std::erase_if(progressions, [](const Progression& one) { return one.points == 1; });
  std::sort(progressions.begin(), progressions.end(),
            [](const Progression& l, const Progression& r) { return l.stride < r.stride; });
  // Where the larger strides step over everything that the smaller ones reach, each sum of the larger ones goes with
  // each of the smaller ones.
  int64_t count = 1;
  Progressions overlapping;
  for (auto next = progressions.begin(); next != progressions.end(); ++next) {
    if (!overlapping.empty() && common_stride(next, progressions.end()) > reach_of(overlapping)) {
      count *= sums_of_overlapping(overlapping);
      overlapping.clear();
    }
    overlapping.push_back(*next);
  }
  return overlapping.empty() ? count : count * sums_of_overlapping(overlapping);
}

}  // namespace millrace
