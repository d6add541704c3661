#include "select/price.h"

#include <algorithm>
#include <set>

#include "base/id.h"
#include "select/conversions.h"
#include "select/problem.h"

namespace millrace {
namespace {

struct Needs {
  bool touched = false;
  int written = kNoLayout;
  std::set<int> layouts;  // that the tensor is needed in
};

std::vector<Needs> needs_of(const Measurements& measurements, const std::vector<int>& candidates) {
  std::vector<Needs> needs(measurements.tensors.size());
  for (size_t p = 0; p < measurements.partitions.size(); ++p) {
    if (candidates[p] < 0) continue;
    const MeasuredPartition& partition = measurements.partitions[p];
    const std::vector<int>& layouts = partition.candidates[as_index(candidates[p])].layouts;
    for (size_t k = 0; k < partition.reads.size(); ++k) {
      needs[as_index(partition.reads[k])].touched = true;
      needs[as_index(partition.reads[k])].layouts.insert(layouts[k]);
    }
    for (size_t k = 0; k < partition.writes.size(); ++k) {
      needs[as_index(partition.writes[k])].touched = true;
      needs[as_index(partition.writes[k])].written = layouts[partition.reads.size() + k];
    }
  }
  return needs;
}

// The conversions of one tensor from `from`; none if one of them is not possible.
std::optional<std::vector<SelectedConversion>> conversions_from(int from, const Needs& needs, int tensor,
                                                                const CheapestConversions& cheapest) {
  std::vector<SelectedConversion> result;
  for (const int to : needs.layouts) {
    if (to == from) continue;
    if (cheapest.between(from, to) == kInfinity) return std::nullopt;
    result.push_back({tensor, from, to, cheapest.between(from, to), cheapest.via(from, to)});
  }
  return result;
}

double seconds_of(const std::vector<SelectedConversion>& conversions) {
  double sum = 0;
  for (const SelectedConversion& conversion : conversions) sum += conversion.seconds;
  return sum;
}

// Prefers, at equal cost, the one with fewer conversions.
bool cheaper(const std::vector<SelectedConversion>& a, const std::vector<SelectedConversion>& b) {
  return std::pair(seconds_of(a), a.size()) < std::pair(seconds_of(b), b.size());
}

}  // namespace

std::optional<Selection> priced(const Measurements& measurements, const std::vector<int>& alternatives,
                                const std::vector<int>& candidates, const std::vector<CheapestConversions>& cheapest) {
  Selection selection;
  selection.alternatives = alternatives;
  selection.bound = selection.lower_bound = unconstrained_bound(measurements);
  for (size_t p = 0; p < measurements.partitions.size(); ++p) {
    if (candidates[p] < 0) continue;
    selection.partitions.push_back({static_cast<int>(p), candidates[p]});
    selection.cost += measurements.partitions[p].candidates[as_index(candidates[p])].seconds;
  }
  std::vector<bool> written(measurements.tensors.size(), false);
  for (const MeasuredPartition& partition : measurements.partitions) {
    for (const int tensor : partition.writes) written[as_index(tensor)] = true;
  }
  std::vector<Needs> needs = needs_of(measurements, candidates);
  for (size_t t = 0; t < needs.size(); ++t) {
    if (!needs[t].touched) continue;
    const MeasuredTensor& tensor = measurements.tensors[t];
    if (written[t] && needs[t].written == kNoLayout) return std::nullopt;
    if (written[t] && tensor.pinned != kNoLayout) needs[t].layouts.insert(tensor.pinned);
    int first = 0;
    int last = static_cast<int>(tensor.layouts.size()) - 1;
    if (written[t])
      first = last = needs[t].written;
    else if (tensor.pinned != kNoLayout)
      first = last = tensor.pinned;
    std::optional<std::vector<SelectedConversion>> best;
    for (int from = first; from <= last; ++from) {
      auto conversions = conversions_from(from, needs[t], static_cast<int>(t), cheapest[t]);
      if (conversions && (!best || cheaper(*conversions, *best))) best = std::move(conversions);
    }
    if (!best) return std::nullopt;
    selection.cost += seconds_of(*best);
    selection.conversions.insert(selection.conversions.end(), best->begin(), best->end());
  }
  return selection;
}

double unconstrained_bound(const Measurements& measurements) {
  double bound = 0;
  for (const MeasuredChoicePoint& choice_point : measurements.choice_points) {
    double least = kInfinity;
    for (const auto& alternative : choice_point.alternatives) {
      double sum = 0;
      for (const int p : alternative) {
        double fastest = kInfinity;
        for (const MeasuredCandidate& candidate : measurements.partitions[as_index(p)].candidates)
          fastest = std::min(fastest, candidate.seconds);
        sum += fastest;
      }
      least = std::min(least, sum);
    }
    bound += least;
  }
  return bound;
}

}  // namespace millrace
