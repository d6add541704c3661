// Which candidates of a partition are listed: all, or the most promising ones of many.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "candidates/configs.h"

namespace millrace {
namespace {

// Limits for a partition with too many combinations of layouts.
constexpr size_t kListed = 1000;  // candidates, and a few for each layout of each tensor
constexpr size_t kListedPerLayout = 4;
constexpr double kListedCombinations = 6000;   // of layouts, among which those candidates are found
constexpr double kSampledCombinations = 2000;  // that are counted, as representatives of all
constexpr size_t kSampledGroups = 48;
constexpr double kLateCombinations = 300;  // that are listed, or counted, when there is no time left

bool are_too_many(const ConfigGroups& groups, double most) {
  double combinations = 0;
  for (size_t group = 0; group < groups.count() && combinations <= most; ++group)
    combinations += groups.combinations(group);
  return combinations > most;
}

void list_all(ConfigGroups& groups, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
              PartitionCandidates& partition) {
  Collector collector(domains, partition, {options.most});
  for (size_t group = 0; group < groups.count(); ++group) groups.add(group, collector);
  groups.reject_others(collector);
  collector.finish();
}

// Estimates the size of a population from `drawn` random draws, of which this share gave a new member. The share
// is (1 - exp(-x)) / x, where x is `drawn` divided by the size.
double population(double drawn, double share_of_new) {
  double low = 0;
  double high = 1e6;
  for (int step = 0; step < 100; ++step) {
    const double x = (low + high) / 2;
    (-std::expm1(-x) / x > share_of_new ? low : high) = x;
  }
  return drawn / high;
}

// Counts the candidates and the reasons of some groups, spread evenly, as representatives of all.
void count_by_sample(ConfigGroups& groups, const std::vector<TensorDomain>& domains, double combinations,
                     PartitionCandidates& partition) {
  const double per_group = std::max(1.0, groups.combinations(groups.count() / 2));
  const size_t sampled =
      std::min({groups.count(), kSampledGroups, static_cast<size_t>(std::ceil(combinations / per_group))});
  PartitionCandidates sample;
  sample.partition = partition.partition;
  Collector counter(domains, sample, {1, 1});
  for (size_t k = 0; k < sampled; ++k) groups.add(k * groups.count() / sampled, counter);
  const double represented = static_cast<double>(groups.count()) / static_cast<double>(sampled);
  const double drawn = sample.configurations / counter.share_of_new();
  // Some are drawn far more often than others, so the population is a low estimate, and the number of draws a high one.
  const double all = drawn * represented;
  const double fewest = counter.share_of_new() < 1 ? std::min(all, population(drawn, counter.share_of_new())) : all;
  partition.configurations = std::max(partition.configurations, std::round(std::sqrt(fewest * all)));
  partition.estimated = true;
  partition.rejected.clear();
  Collector into(domains, partition, {});
  for (const Rejected& rejected : sample.rejected)
    into.reject(rejected.reason, std::round(rejected.count * represented));
  groups.reject_others(into);
}

// The numbers of the groups that have candidates, the most promising first.
std::vector<std::pair<double, size_t>> by_bound(ConfigGroups& groups) {
  std::vector<std::pair<double, size_t>> sorted;
  for (size_t group = 0; group < groups.count(); ++group) {
    const double bound = groups.bound(group);
    if (std::isfinite(bound)) sorted.emplace_back(bound, group);
  }
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

// The layouts of each tensor that were listed.
class Visited {
 public:
  // Whether a group has a layout that no group before had.
  bool add(const std::vector<std::vector<int>>& layouts) {
    visited_.resize(layouts.size());
    bool fresh = false;
    for (size_t k = 0; k < layouts.size(); ++k) {
      for (const int layout : layouts[k]) fresh = visited_[k].insert(layout).second || fresh;
    }
    return fresh;
  }

 private:
  std::vector<std::set<int>> visited_;  // by tensor
};

// Groups in order of their bounds: those that may have one of the best candidates, one for each layout of each tensor,
// and those with written layouts. If none of them has a candidate, the others too. Returns how many groups it added.
size_t list_promising(ConfigGroups& groups, const EnumerateOptions& options, Collector& collector,
                      PartitionCandidates& partition) {
  const size_t most = std::min(options.most, kListed);
  Visited visited;
  double combinations = 0;
  size_t added = 0;
  size_t finished = 0;
  for (const auto& [bound, group] : by_bound(groups)) {
    const bool wanted = collector.is_promising(bound) || visited.add(groups.layouts(group));
    const bool skipped = !wanted || combinations >= kListedCombinations;
    if (skipped && !groups.may_be_written(group) && !partition.candidates.empty()) continue;
    groups.add(group, collector);
    combinations += groups.combinations(group);
    ++added;
    if (partition.candidates.size() < finished + 4 * most) continue;
    collector.finish();
    finished = partition.candidates.size();
  }
  return added;
}

// Groups with written layouts, quickly. If none of them has a candidate, others until one has. Returns how many groups
// it added.
size_t list_written(ConfigGroups& groups, Collector& collector, PartitionCandidates& partition) {
  size_t added = 0;
  for (const bool written : {true, false}) {
    for (size_t group = 0; group < groups.count() && (written || partition.candidates.empty()); ++group) {
      if (groups.may_be_written(group) != written) continue;
      groups.add(group, collector);
      ++added;
    }
  }
  return added;
}

}  // namespace

void list_configs(ConfigGroups& groups, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                  PartitionCandidates& partition) {
  const bool late = options.deadline.passed();
  if (!are_too_many(groups, late ? kLateCombinations : options.most_combinations))
    return list_all(groups, domains, options, partition);
  Collector collector(domains, partition, {std::min(options.most, kListed), kListedPerLayout});
  const size_t added =
      late ? list_written(groups, collector, partition) : list_promising(groups, options, collector, partition);
  collector.finish();
  if (added == groups.count()) return groups.reject_others(collector);
  count_by_sample(groups, domains, late ? kLateCombinations : kSampledCombinations, partition);
}

}  // namespace millrace
