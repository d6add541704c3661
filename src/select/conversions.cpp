#include "select/conversions.h"

#include <algorithm>
#include <queue>

#include "base/id.h"
#include "select/problem.h"

namespace millrace {
namespace {

using Edges = std::vector<std::vector<std::pair<int, double>>>;  // by `from`: `to` and seconds

// Shortest paths from one layout. Of equally cheap chains, the one with fewer conversions is found first.
void add_paths(const Edges& edges, int from, CheapestConversions& result) {
  struct Reached {
    double seconds = 0;
    int conversions = 0;
    int layout = 0;
    int before = kNoLayout;
    bool operator>(const Reached& other) const {
      return std::pair(seconds, conversions) > std::pair(other.seconds, other.conversions);
    }
  };
  const size_t row = as_index(from) * result.layouts;
  std::vector<bool> done(result.layouts, false);
  std::vector<std::pair<double, int>> least(result.layouts,
                                            {kInfinity, 0});  // seconds and conversions, of what was found
  std::priority_queue<Reached, std::vector<Reached>, std::greater<>> open;
  open.push({0, 0, from, kNoLayout});
  while (!open.empty()) {
    const Reached reached = open.top();
    open.pop();
    if (done[as_index(reached.layout)]) continue;
    done[as_index(reached.layout)] = true;
    result.seconds[row + as_index(reached.layout)] = reached.seconds;
    result.before[row + as_index(reached.layout)] = reached.before;
    for (const auto& [to, seconds] : edges[as_index(reached.layout)]) {
      const std::pair found{reached.seconds + seconds, reached.conversions + 1};
      if (done[as_index(to)] || found >= least[as_index(to)]) continue;
      least[as_index(to)] = found;
      open.push({found.first, found.second, to, reached.layout});
    }
  }
}

}  // namespace

std::vector<int> CheapestConversions::via(int from, int to) const {
  std::vector<int> chain;
  for (int l = before[position(from, to)]; l != from && l != kNoLayout; l = before[position(from, l)])
    chain.push_back(l);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

std::vector<CheapestConversions> cheapest_conversions(const Measurements& measurements) {
  std::vector<Edges> edges;
  for (const MeasuredTensor& tensor : measurements.tensors) edges.emplace_back(tensor.layouts.size());
  for (const MeasuredConversion& conversion : measurements.conversions)
    edges[as_index(conversion.tensor)][as_index(conversion.from)].emplace_back(conversion.to, conversion.seconds);
  std::vector<CheapestConversions> result;
  for (const Edges& of_tensor : edges) {
    CheapestConversions& cheapest = result.emplace_back();
    cheapest.layouts = of_tensor.size();
    cheapest.seconds.assign(of_tensor.size() * of_tensor.size(), kInfinity);
    cheapest.before.assign(of_tensor.size() * of_tensor.size(), kNoLayout);
    for (size_t from = 0; from < of_tensor.size(); ++from) add_paths(of_tensor, static_cast<int>(from), cheapest);
  }
  return result;
}

}  // namespace millrace
