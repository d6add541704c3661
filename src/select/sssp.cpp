#include "select/sssp.h"

#include <algorithm>
#include <optional>

#include "base/id.h"
#include "select/exact.h"
#include "select/price.h"
#include "select/problem.h"

namespace millrace {
namespace {

// A part of the main chain and the tensors by which it hangs in it.
struct Link {
  size_t part = 0;
  int in = -1;   // what it reads of the link before; -1: it is the first
  int out = -1;  // what it writes for the next, or its first result
  int in_layout = kNoLayout;
  int out_layout = kNoLayout;
};

class ShortestPath {
 public:
  explicit ShortestPath(const Measurements& measurements) : measurements_(measurements) {
    for (const MeasuredTensor& tensor : measurements.tensors)
      seconds_.emplace_back(tensor.layouts.size() * tensor.layouts.size(), kInfinity);
    for (size_t t = 0; t < seconds_.size(); ++t) {
      for (size_t l = 0; l < layouts(t); ++l) seconds_[t][l * layouts(t) + l] = 0;
    }
    for (const MeasuredConversion& conversion : measurements.conversions) {
      const size_t t = as_index(conversion.tensor);
      double& entry = seconds_[t][as_index(conversion.from) * layouts(t) + as_index(conversion.to)];
      entry = std::min(entry, conversion.seconds);
    }
    in_cover_.assign(measurements.parts.size(), false);
    for (const MeasuredSite& site : measurements.sites) {
      for (const int p : site.alternatives[0]) in_cover_[as_index(p)] = true;
    }
    written_.assign(measurements.tensors.size(), false);
    for (const MeasuredPart& part : measurements.parts) {
      for (const int t : part.writes) written_[as_index(t)] = true;
    }
  }

  Result<Selection> run() {
    find_chain();
    follow_shortest_path();
    const std::vector<int> alternatives(measurements_.sites.size(), 0);
    if (follow_greedily()) {
      if (std::optional<Selection> selection = priced(measurements_, alternatives, ways_)) return *std::move(selection);
    }
    // Nothing went with what was taken before: keep the path alone, then the cover alone, then nothing.
    Restriction restriction;
    restriction.alternatives = alternatives;
    restriction.written.assign(measurements_.tensors.size(), kNoLayout);
    for (const Link& link : chain_) {
      if (link.out >= 0) restriction.written[as_index(link.out)] = link.out_layout;
    }
    if (Result<Selection> selection = select_exact(measurements_, restriction)) return selection;
    restriction.written.clear();
    if (Result<Selection> selection = select_exact(measurements_, restriction)) return selection;
    return select_exact(measurements_);
  }

 private:
  size_t layouts(size_t tensor) const { return measurements_.tensors[tensor].layouts.size(); }
  double conversion(int tensor, int from, int to) const {
    return seconds_[as_index(tensor)][as_index(from) * layouts(as_index(tensor)) + as_index(to)];
  }

  // The longest path from part to part through tensors, among the forward parts.
  void find_chain() {
    struct Best {
      int length = 0;
      int before = -1;
      int tensor = -1;
    };
    std::vector<Best> best(measurements_.parts.size());
    std::vector<int> writer(measurements_.tensors.size(), -1);
    int last = -1;
    for (size_t p = 0; p < measurements_.parts.size(); ++p) {
      const MeasuredPart& part = measurements_.parts[p];
      if (!in_cover_[p] || part.backward) continue;
      best[p].length = 1;
      for (const int t : part.reads) {
        const int before = writer[as_index(t)];
        if (before >= 0 && best[as_index(before)].length + 1 > best[p].length)
          best[p] = {best[as_index(before)].length + 1, before, t};
      }
      for (const int t : part.writes) writer[as_index(t)] = static_cast<int>(p);
      if (last < 0 || best[p].length > best[as_index(last)].length) last = static_cast<int>(p);
    }
    int out = last >= 0 && !measurements_.parts[as_index(last)].writes.empty()
                  ? measurements_.parts[as_index(last)].writes[0]
                  : -1;
    for (int p = last; p >= 0; p = best[as_index(p)].before) {
      chain_.push_back({as_index(p), best[as_index(p)].tensor, out, kNoLayout, kNoLayout});
      out = best[as_index(p)].tensor;
    }
    std::reverse(chain_.begin(), chain_.end());
  }

  static int layout_of(const MeasuredPart& part, const MeasuredWay& way, int tensor, bool written) {
    const auto& list = written ? part.writes : part.reads;
    const auto at = static_cast<size_t>(std::find(list.begin(), list.end(), tensor) - list.begin());
    return way.layouts[at + (written ? part.reads.size() : 0)];
  }

  // Nodes are the layouts in which the tensors of the chain are written; an edge is the fastest way of the part between
  // two of them, with a conversion before it where that is faster.
  void follow_shortest_path() {
    struct Step {
      double seconds = kInfinity;
      int before = kNoLayout;  // the layout in which the tensor before is written
      int read = kNoLayout;    // and the one in which it is read
    };
    std::vector<std::vector<Step>> steps;
    for (const Link& link : chain_) {
      const MeasuredPart& part = measurements_.parts[link.part];
      std::vector<Step> now(link.out >= 0 ? layouts(as_index(link.out)) : 1);
      for (const MeasuredWay& way : part.ways) {
        const int out = link.out >= 0 ? layout_of(part, way, link.out, true) : 0;
        const auto relax = [&](double seconds, int before, int read) {
          if (seconds < now[as_index(out)].seconds) now[as_index(out)] = {seconds, before, read};
        };
        if (link.in < 0) {
          relax(way.seconds, kNoLayout, kNoLayout);
          continue;
        }
        const int read = layout_of(part, way, link.in, false);
        for (size_t before = 0; before < steps.back().size(); ++before)
          relax(steps.back()[before].seconds + conversion(link.in, static_cast<int>(before), read) + way.seconds,
                static_cast<int>(before), read);
      }
      steps.push_back(std::move(now));
    }
    if (chain_.empty()) return;
    const auto cheapest = [](const Step& a, const Step& b) { return a.seconds < b.seconds; };
    auto layout =
        static_cast<int>(std::min_element(steps.back().begin(), steps.back().end(), cheapest) - steps.back().begin());
    for (size_t k = chain_.size(); k-- > 0 && layout != kNoLayout;) {
      const Step& step = steps[k][as_index(layout)];
      if (step.seconds == kInfinity) return;
      chain_[k].out_layout = layout;
      chain_[k].in_layout = step.read;
      layout = step.before;
    }
  }

  // Each part in order takes the way that costs least with the conversions that it needs; false when one has none.
  bool follow_greedily() {
    ways_.assign(measurements_.parts.size(), -1);
    lies_.assign(measurements_.tensors.size(), {});
    for (size_t t = 0; t < lies_.size(); ++t) {
      if (!written_[t] && measurements_.tensors[t].pinned != kNoLayout) lies_[t] = {measurements_.tensors[t].pinned};
    }
    for (size_t p = 0; p < measurements_.parts.size(); ++p) {
      if (!in_cover_[p]) continue;
      const MeasuredPart& part = measurements_.parts[p];
      const auto link = std::find_if(chain_.begin(), chain_.end(), [&](const Link& entry) { return entry.part == p; });
      double best = kInfinity;
      for (size_t w = 0; w < part.ways.size(); ++w) {
        if (link != chain_.end() && !on_path(*link, part.ways[w])) continue;
        const double seconds = added_seconds(part, part.ways[w]);
        if (seconds >= best) continue;
        best = seconds;
        ways_[p] = static_cast<int>(w);
      }
      if (ways_[p] < 0) return false;
      take(part, part.ways[as_index(ways_[p])]);
    }
    return true;
  }

  bool on_path(const Link& link, const MeasuredWay& way) const {
    const MeasuredPart& part = measurements_.parts[link.part];
    const bool in = link.in_layout == kNoLayout || layout_of(part, way, link.in, false) == link.in_layout;
    const bool out =
        link.out < 0 || link.out_layout == kNoLayout || layout_of(part, way, link.out, true) == link.out_layout;
    return in && out;
  }

  double added_seconds(const MeasuredPart& part, const MeasuredWay& way) const {
    double sum = way.seconds;
    for (size_t k = 0; k < part.reads.size(); ++k) {
      const std::vector<int>& lies = lies_[as_index(part.reads[k])];
      const bool there = lies.empty() || std::find(lies.begin(), lies.end(), way.layouts[k]) != lies.end();
      if (lies.empty() && written_[as_index(part.reads[k])]) return kInfinity;
      if (!there) sum += conversion(part.reads[k], lies[0], way.layouts[k]);
    }
    for (size_t k = 0; k < part.writes.size(); ++k) {
      const int pinned = measurements_.tensors[as_index(part.writes[k])].pinned;
      if (pinned != kNoLayout) sum += conversion(part.writes[k], way.layouts[part.reads.size() + k], pinned);
    }
    return sum;
  }

  void take(const MeasuredPart& part, const MeasuredWay& way) {
    for (size_t k = 0; k < part.reads.size(); ++k) {
      std::vector<int>& lies = lies_[as_index(part.reads[k])];
      if (std::find(lies.begin(), lies.end(), way.layouts[k]) == lies.end()) lies.push_back(way.layouts[k]);
    }
    for (size_t k = 0; k < part.writes.size(); ++k) {
      std::vector<int>& lies = lies_[as_index(part.writes[k])];
      lies.push_back(way.layouts[part.reads.size() + k]);
      const int pinned = measurements_.tensors[as_index(part.writes[k])].pinned;
      if (pinned != kNoLayout && pinned != lies[0]) lies.push_back(pinned);
    }
  }

  const Measurements& measurements_;
  std::vector<std::vector<double>> seconds_;  // of conversions, by tensor
  std::vector<bool> in_cover_;
  std::vector<bool> written_;
  std::vector<Link> chain_;
  std::vector<int> ways_;
  std::vector<std::vector<int>> lies_;  // by tensor: the layouts that it lies in, the first one first
};

}  // namespace

Result<Selection> select_sssp(const Measurements& measurements) {
  Result<Selection> selection = ShortestPath(measurements).run();
  if (!selection) return selection;
  selection->method = SelectMethod::sssp;
  selection->proven = false;
  return selection;
}

}  // namespace millrace
