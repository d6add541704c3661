// The cheapest selection, found by trying every alternative and candidate; shares no code with src/select/.
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
    add_chains();
    for (const MeasuredPartition& partition : m_.partitions)
      written_.insert(partition.writes.begin(), partition.writes.end());
  }

  // Infinity if no selection is valid.
  double cost() {
    best_ = kNever;
    choose_cover(0, {});
    return best_;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // Floyd and Warshall's shortest paths: chains of conversions where they are cheaper.
  void add_chains() {
    for (size_t t = 0; t < m_.tensors.size(); ++t) {
      const int tensor = static_cast<int>(t);
      const int layouts = static_cast<int>(m_.tensors[t].layouts.size());
      for (int via = 0; via < layouts; ++via) {
        for (int from = 0; from < layouts; ++from) {
          for (int to = 0; to < layouts; ++to) add_chain(tensor, from, via, to);
        }
      }
    }
  }

  void add_chain(int tensor, int from, int via, int to) {
    const auto first = conversions_.find({tensor, from, via});
    const auto second = conversions_.find({tensor, via, to});
    if (from == to || first == conversions_.end() || second == conversions_.end()) return;
    const double seconds = first->second + second->second;
    const auto [entry, fresh] = conversions_.try_emplace({tensor, from, to}, seconds);
    if (!fresh) entry->second = std::min(entry->second, seconds);
  }

  void choose_cover(size_t choice_point, const std::set<int>& cover) {
    if (choice_point == m_.choice_points.size()) {
      std::map<int, int> candidates;
      choose_candidates(cover.begin(), cover.end(), candidates, 0);
      return;
    }
    for (const std::vector<int>& alternative : m_.choice_points[choice_point].alternatives) {
      std::set<int> more = cover;
      more.insert(alternative.begin(), alternative.end());
      choose_cover(choice_point + 1, more);
    }
  }

  void choose_candidates(std::set<int>::const_iterator next, std::set<int>::const_iterator end,
                         std::map<int, int>& candidates, double seconds) {
    if (seconds >= best_) return;
    if (next == end) {
      best_ = std::min(best_, seconds + conversions_of(candidates));
      return;
    }
    const MeasuredPartition& partition = m_.partitions[static_cast<size_t>(*next)];
    const auto after = std::next(next);
    for (size_t w = 0; w < partition.candidates.size(); ++w) {
      candidates[*next] = static_cast<int>(w);
      choose_candidates(after, end, candidates, seconds + partition.candidates[w].seconds);
    }
    candidates.erase(*next);
  }

  double conversions_of(const std::map<int, int>& candidates) const {
    std::map<int, std::set<int>> read;
    std::map<int, int> written;
    for (const auto& [p, w] : candidates) {
      const MeasuredPartition& partition = m_.partitions[static_cast<size_t>(p)];
      const std::vector<int>& layouts = partition.candidates[static_cast<size_t>(w)].layouts;
      for (size_t k = 0; k < layouts.size(); ++k) {
        if (k < partition.reads.size())
          read[partition.reads[k]].insert(layouts[k]);
        else
          written[partition.writes[k - partition.reads.size()]] = layouts[k];
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
