// The cheapest selection by trying every cover and every way of every part; shares no code with src/select/.
#pragma once

#include <limits>
#include <map>
#include <set>
#include <vector>

#include "measure/measurements.h"

namespace millrace {

class BruteForce {
 public:
  explicit BruteForce(const Measurements& measurements) : m_(measurements) {
    for (const MeasuredConversion& c : m_.conversions) {
      const auto [entry, fresh] = conversions_.try_emplace({c.tensor, c.from, c.to}, c.seconds);
      if (!fresh) entry->second = std::min(entry->second, c.seconds);
    }
    for (const MeasuredPart& part : m_.parts) written_.insert(part.writes.begin(), part.writes.end());
  }

  // Infinity when nothing fits.
  double cost() {
    best_ = kNever;
    choose_cover(0, {});
    return best_;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  void choose_cover(size_t site, const std::set<int>& cover) {
    if (site == m_.sites.size()) {
      std::map<int, int> ways;
      choose_ways(cover.begin(), cover.end(), ways, 0);
      return;
    }
    for (const std::vector<int>& alternative : m_.sites[site].alternatives) {
      std::set<int> more = cover;
      more.insert(alternative.begin(), alternative.end());
      choose_cover(site + 1, more);
    }
  }

  void choose_ways(std::set<int>::const_iterator next, std::set<int>::const_iterator end, std::map<int, int>& ways,
                   double seconds) {
    if (seconds >= best_) return;
    if (next == end) {
      best_ = std::min(best_, seconds + conversions_of(ways));
      return;
    }
    const MeasuredPart& part = m_.parts[static_cast<size_t>(*next)];
    const auto after = std::next(next);
    for (size_t w = 0; w < part.ways.size(); ++w) {
      ways[*next] = static_cast<int>(w);
      choose_ways(after, end, ways, seconds + part.ways[w].seconds);
    }
    ways.erase(*next);
  }

  double conversions_of(const std::map<int, int>& ways) const {
    std::map<int, std::set<int>> read;
    std::map<int, int> written;
    for (const auto& [p, w] : ways) {
      const MeasuredPart& part = m_.parts[static_cast<size_t>(p)];
      const std::vector<int>& layouts = part.ways[static_cast<size_t>(w)].layouts;
      for (size_t k = 0; k < layouts.size(); ++k) {
        if (k < part.reads.size())
          read[part.reads[k]].insert(layouts[k]);
        else
          written[part.writes[k - part.reads.size()]] = layouts[k];
      }
    }
    double sum = 0;
    for (const auto& [tensor, layout] : written) {
      const int pinned = m_.tensors[static_cast<size_t>(tensor)].pinned;
      if (pinned != kNoLayout) read[tensor].insert(pinned);
    }
    for (const auto& [tensor, layouts] : read) {
      const MeasuredTensor& info = m_.tensors[static_cast<size_t>(tensor)];
      if (written_.contains(tensor)) {
        if (!written.contains(tensor)) return kNever;
        sum += from(tensor, written.at(tensor), layouts);
      } else if (info.pinned != kNoLayout) {
        sum += from(tensor, info.pinned, layouts);
      } else {
        double least = kNever;
        for (size_t l = 0; l < info.layouts.size(); ++l)
          least = std::min(least, from(tensor, static_cast<int>(l), layouts));
        sum += least;
      }
    }
    return sum;
  }

  double from(int tensor, int base, const std::set<int>& layouts) const {
    double sum = 0;
    for (const int layout : layouts) {
      if (layout == base) continue;
      const auto found = conversions_.find({tensor, base, layout});
      if (found == conversions_.end()) return kNever;
      sum += found->second;
    }
    return sum;
  }

  const Measurements& m_;
  std::map<std::tuple<int, int, int>, double> conversions_;
  std::set<int> written_;
  double best_ = kNever;
};

}  // namespace millrace
