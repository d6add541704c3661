#include "select/sssp.h"

#include <algorithm>
#include <optional>

#include "base/id.h"
#include "base/position.h"
#include "select/conversions.h"
#include "select/exact.h"
#include "select/price.h"
#include "select/problem.h"

namespace millrace {
namespace {

// A partition of the main chain, and the tensors that connect it to the chain.
struct Link {
  size_t partition = 0;
  int in = -1;   // what it reads from the previous link; -1: it is the first
  int out = -1;  // what it writes for the next link, or its first result
  int in_layout = kNoLayout;
  int out_layout = kNoLayout;
};

class ShortestPath {
 public:
  explicit ShortestPath(const Measurements& measurements)
      : measurements_(measurements), cheapest_(cheapest_conversions(measurements)) {
    selected_.assign(measurements.partitions.size(), false);
    for (const MeasuredChoicePoint& choice_point : measurements.choice_points) {
      for (const int p : choice_point.alternatives[0]) selected_[as_index(p)] = true;
    }
    written_.assign(measurements.tensors.size(), false);
    for (const MeasuredPartition& partition : measurements.partitions) {
      for (const int t : partition.writes) written_[as_index(t)] = true;
    }
  }

  Result<Selection> run(const SelectLimits& limits) {
    find_chain();
    follow_shortest_path();
    const std::vector<int> alternatives(measurements_.choice_points.size(), 0);
    if (follow_greedily()) {
      if (std::optional<Selection> selection = priced(measurements_, alternatives, candidates_, cheapest_))
        return *std::move(selection);
    }
    // Nothing fitted the earlier choices: keep the path alone, then the alternatives alone, then nothing.
    Restriction restriction;
    restriction.alternatives = alternatives;
    restriction.written.assign(measurements_.tensors.size(), kNoLayout);
    for (const Link& link : chain_) {
      if (link.out >= 0) restriction.written[as_index(link.out)] = link.out_layout;
    }
    if (Result<Selection> selection = select_exact(measurements_, limits, restriction)) return selection;
    restriction.written.clear();
    if (Result<Selection> selection = select_exact(measurements_, limits, restriction)) return selection;
    return select_exact(measurements_, limits);
  }

 private:
  size_t layouts(size_t tensor) const { return measurements_.tensors[tensor].layouts.size(); }
  double conversion(int tensor, int from, int to) const { return cheapest_[as_index(tensor)].between(from, to); }

  // The longest path from partition to partition through tensors, among the forward partitions.
  void find_chain() {
    struct Best {
      int length = 0;
      int before = -1;
      int tensor = -1;
    };
    std::vector<Best> best(measurements_.partitions.size());
    std::vector<int> writer(measurements_.tensors.size(), -1);
    int last = -1;
    for (size_t p = 0; p < measurements_.partitions.size(); ++p) {
      const MeasuredPartition& partition = measurements_.partitions[p];
      if (!selected_[p] || partition.backward) continue;
      best[p].length = 1;
      for (const int t : partition.reads) {
        const int before = writer[as_index(t)];
        if (before >= 0 && best[as_index(before)].length + 1 > best[p].length)
          best[p] = {best[as_index(before)].length + 1, before, t};
      }
      for (const int t : partition.writes) writer[as_index(t)] = static_cast<int>(p);
      if (last < 0 || best[p].length > best[as_index(last)].length) last = static_cast<int>(p);
    }
    int out = last >= 0 && !measurements_.partitions[as_index(last)].writes.empty()
                  ? measurements_.partitions[as_index(last)].writes[0]
                  : -1;
    for (int p = last; p >= 0; p = best[as_index(p)].before) {
      chain_.push_back({as_index(p), best[as_index(p)].tensor, out, kNoLayout, kNoLayout});
      out = best[as_index(p)].tensor;
    }
    std::reverse(chain_.begin(), chain_.end());
  }

  static int layout_of(const MeasuredPartition& partition, const MeasuredCandidate& candidate, int tensor,
                       bool written) {
    const auto& list = written ? partition.writes : partition.reads;
    const auto at = position_in(list, tensor);
    return candidate.layouts[at + (written ? partition.reads.size() : 0)];
  }

  // Nodes are the layouts in which the chain's tensors are written. An edge is the fastest candidate of the partition
  // between two of them, preceded by a conversion where that is faster.
  void follow_shortest_path() {
    struct Node {
      double seconds = kInfinity;
      int before = kNoLayout;  // the layout in which the previous tensor is written
      int read = kNoLayout;    // the layout in which it is read
    };
    std::vector<std::vector<Node>> columns;
    for (const Link& link : chain_) {
      const MeasuredPartition& partition = measurements_.partitions[link.partition];
      std::vector<Node> now(link.out >= 0 ? layouts(as_index(link.out)) : 1);
      for (const MeasuredCandidate& candidate : partition.candidates) {
        const int out = link.out >= 0 ? layout_of(partition, candidate, link.out, true) : 0;
        const auto relax = [&](double seconds, int before, int read) {
          if (seconds < now[as_index(out)].seconds) now[as_index(out)] = {seconds, before, read};
        };
        if (link.in < 0) {
          relax(candidate.seconds, kNoLayout, kNoLayout);
          continue;
        }
        const int read = layout_of(partition, candidate, link.in, false);
        for (size_t before = 0; before < columns.back().size(); ++before)
          relax(
              columns.back()[before].seconds + conversion(link.in, static_cast<int>(before), read) + candidate.seconds,
              static_cast<int>(before), read);
      }
      columns.push_back(std::move(now));
    }
    if (chain_.empty()) return;
    const auto cheapest = [](const Node& a, const Node& b) { return a.seconds < b.seconds; };
    auto layout = static_cast<int>(std::min_element(columns.back().begin(), columns.back().end(), cheapest) -
                                   columns.back().begin());
    for (size_t k = chain_.size(); k-- > 0 && layout != kNoLayout;) {
      const Node& step = columns[k][as_index(layout)];
      if (step.seconds == kInfinity) return;
      chain_[k].out_layout = layout;
      chain_[k].in_layout = step.read;
      layout = step.before;
    }
  }

  // Each partition in order takes the candidate that costs least together with its conversions; false if one has none.
  bool follow_greedily() {
    candidates_.assign(measurements_.partitions.size(), -1);
    std::vector<const Link*> link_of(measurements_.partitions.size(), nullptr);
    for (const Link& link : chain_) link_of[link.partition] = &link;
    existing_.assign(measurements_.tensors.size(), {});
    for (size_t t = 0; t < existing_.size(); ++t) {
      if (!written_[t] && measurements_.tensors[t].pinned != kNoLayout)
        existing_[t] = {measurements_.tensors[t].pinned};
    }
    for (size_t p = 0; p < measurements_.partitions.size(); ++p) {
      if (!selected_[p]) continue;
      const MeasuredPartition& partition = measurements_.partitions[p];
      const Link* const link = link_of[p];
      double best = kInfinity;
      for (size_t w = 0; w < partition.candidates.size(); ++w) {
        if (link != nullptr && !on_path(*link, partition.candidates[w])) continue;
        const double seconds = added_seconds(partition, partition.candidates[w]);
        if (seconds >= best) continue;
        best = seconds;
        candidates_[p] = static_cast<int>(w);
      }
      if (candidates_[p] < 0) return false;
      take(partition, partition.candidates[as_index(candidates_[p])]);
    }
    return true;
  }

  bool on_path(const Link& link, const MeasuredCandidate& candidate) const {
    const MeasuredPartition& partition = measurements_.partitions[link.partition];
    const bool in = link.in_layout == kNoLayout || layout_of(partition, candidate, link.in, false) == link.in_layout;
    const bool out = link.out < 0 || link.out_layout == kNoLayout ||
                     layout_of(partition, candidate, link.out, true) == link.out_layout;
    return in && out;
  }

  double added_seconds(const MeasuredPartition& partition, const MeasuredCandidate& candidate) const {
    double sum = candidate.seconds;
    for (size_t k = 0; k < partition.reads.size(); ++k) {
      const std::vector<int>& existing = existing_[as_index(partition.reads[k])];
      const bool there =
          existing.empty() || std::find(existing.begin(), existing.end(), candidate.layouts[k]) != existing.end();
      if (existing.empty() && written_[as_index(partition.reads[k])]) return kInfinity;
      if (!there) sum += conversion(partition.reads[k], existing[0], candidate.layouts[k]);
    }
    for (size_t k = 0; k < partition.writes.size(); ++k) {
      const int pinned = measurements_.tensors[as_index(partition.writes[k])].pinned;
      if (pinned != kNoLayout)
        sum += conversion(partition.writes[k], candidate.layouts[partition.reads.size() + k], pinned);
    }
    return sum;
  }

  void take(const MeasuredPartition& partition, const MeasuredCandidate& candidate) {
    for (size_t k = 0; k < partition.reads.size(); ++k) {
      std::vector<int>& existing = existing_[as_index(partition.reads[k])];
      if (std::find(existing.begin(), existing.end(), candidate.layouts[k]) == existing.end())
        existing.push_back(candidate.layouts[k]);
    }
    for (size_t k = 0; k < partition.writes.size(); ++k) {
      std::vector<int>& existing = existing_[as_index(partition.writes[k])];
      existing.push_back(candidate.layouts[partition.reads.size() + k]);
      const int pinned = measurements_.tensors[as_index(partition.writes[k])].pinned;
      if (pinned != kNoLayout && pinned != existing[0]) existing.push_back(pinned);
    }
  }

  const Measurements& measurements_;
  const std::vector<CheapestConversions> cheapest_;  // by tensor
  std::vector<bool> selected_;
  std::vector<bool> written_;
  std::vector<Link> chain_;
  std::vector<int> candidates_;
  std::vector<std::vector<int>> existing_;  // by tensor: the layouts that exist of it, the first one first
};

}  // namespace

Result<Selection> select_sssp(const Measurements& measurements, const SelectLimits& limits) {
  Result<Selection> selection = ShortestPath(measurements).run(limits);
  if (!selection) return selection;
  selection->method = SelectMethod::sssp;
  selection->proven = false;
  selection->lower_bound = selection->bound;
  return selection;
}

}  // namespace millrace
