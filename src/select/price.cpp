#include "select/price.h"

#include <algorithm>
#include <set>

#include "base/id.h"
#include "select/problem.h"

namespace millrace {
namespace {

struct Needs {
  bool touched = false;
  int written = kNoLayout;
  std::set<int> layouts;  // to lie in
};

std::vector<Needs> needs_of(const Measurements& measurements, const std::vector<int>& ways) {
  std::vector<Needs> needs(measurements.tensors.size());
  for (size_t p = 0; p < measurements.parts.size(); ++p) {
    if (ways[p] < 0) continue;
    const MeasuredPart& part = measurements.parts[p];
    const std::vector<int>& layouts = part.ways[as_index(ways[p])].layouts;
    for (size_t k = 0; k < part.reads.size(); ++k) {
      needs[as_index(part.reads[k])].touched = true;
      needs[as_index(part.reads[k])].layouts.insert(layouts[k]);
    }
    for (size_t k = 0; k < part.writes.size(); ++k) {
      needs[as_index(part.writes[k])].touched = true;
      needs[as_index(part.writes[k])].written = layouts[part.reads.size() + k];
    }
  }
  return needs;
}

// The conversions of one tensor from `from`, or none when one of them is not there.
std::optional<std::vector<SelectedConversion>> conversions_from(int from, const Needs& needs, int tensor,
                                                                const std::vector<MeasuredConversion>& known) {
  std::vector<SelectedConversion> result;
  for (const int to : needs.layouts) {
    if (to == from) continue;
    const MeasuredConversion* best = nullptr;
    for (const MeasuredConversion& conversion : known) {
      if (conversion.from != from || conversion.to != to) continue;
      if (best == nullptr || conversion.seconds < best->seconds) best = &conversion;
    }
    if (best == nullptr) return std::nullopt;
    result.push_back({tensor, from, to, best->seconds});
  }
  return result;
}

double seconds_of(const std::vector<SelectedConversion>& conversions) {
  double sum = 0;
  for (const SelectedConversion& conversion : conversions) sum += conversion.seconds;
  return sum;
}

// Of two that cost the same, the one with fewer.
bool cheaper(const std::vector<SelectedConversion>& a, const std::vector<SelectedConversion>& b) {
  return std::pair(seconds_of(a), a.size()) < std::pair(seconds_of(b), b.size());
}

}  // namespace

std::optional<Selection> priced(const Measurements& measurements, const std::vector<int>& alternatives,
                                const std::vector<int>& ways) {
  Selection selection;
  selection.alternatives = alternatives;
  selection.bound = unconstrained_bound(measurements);
  for (size_t p = 0; p < measurements.parts.size(); ++p) {
    if (ways[p] < 0) continue;
    selection.parts.push_back({static_cast<int>(p), ways[p]});
    selection.cost += measurements.parts[p].ways[as_index(ways[p])].seconds;
  }
  std::vector<std::vector<MeasuredConversion>> known(measurements.tensors.size());
  for (const MeasuredConversion& conversion : measurements.conversions)
    known[as_index(conversion.tensor)].push_back(conversion);
  std::vector<bool> written(measurements.tensors.size(), false);
  for (const MeasuredPart& part : measurements.parts) {
    for (const int tensor : part.writes) written[as_index(tensor)] = true;
  }
  std::vector<Needs> needs = needs_of(measurements, ways);
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
      auto conversions = conversions_from(from, needs[t], static_cast<int>(t), known[t]);
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
  for (const MeasuredSite& site : measurements.sites) {
    double least = kInfinity;
    for (const auto& alternative : site.alternatives) {
      double sum = 0;
      for (const int p : alternative) {
        double fastest = kInfinity;
        for (const MeasuredWay& way : measurements.parts[as_index(p)].ways) fastest = std::min(fastest, way.seconds);
        sum += fastest;
      }
      least = std::min(least, sum);
    }
    bound += least;
  }
  return bound;
}

}  // namespace millrace
