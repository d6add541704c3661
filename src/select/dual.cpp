#include "select/dual.h"

#include <algorithm>

#include "base/clock.h"
#include "base/id.h"

namespace millrace {
namespace {

constexpr size_t kNone = static_cast<size_t>(-1);
constexpr int kSweeps = 200;
constexpr size_t kUpdatesAClock = 16;
constexpr int kSweepsAShare = 5;  // redistributing shares takes longer than a sweep

}  // namespace

DualBound::DualBound(const Problem& problem) : problem_(problem) {
  touch_of_.resize(problem.partitions.size());
  for (size_t p = 0; p < problem.partitions.size(); ++p) touch_of_[p].resize(problem.partitions[p].tensors.size());
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    const ProblemTensor& tensor = problem.tensors[t];
    std::vector<bool> bases(tensor.bases(), true);
    for (size_t b = 0; b < tensor.layouts; ++b) {
      if (!tensor.written && tensor.pinned != kNoLayout) bases[b] = b == as_index(tensor.pinned);
    }
    if (tensor.written) {
      std::vector<bool> written(tensor.layouts, false);
      for (const Touch& touch : tensor.touches) {
        if (!touch.writes) continue;
        for (const ProblemCandidate& candidate : problem.partitions[touch.partition].candidates)
          written[as_index(candidate.layouts[touch.slot])] = true;
      }
      std::copy(written.begin(), written.end(), bases.begin());
    }
    bases_.push_back(std::move(bases));
    touches_.emplace_back(tensor.touches.size());
    for (size_t k = 0; k < tensor.touches.size(); ++k) {
      const Touch& touch = tensor.touches[k];
      touch_of_[touch.partition][touch.slot] = k;
      TouchPrices& prices = touches_[t][k];
      prices.price.assign(tensor.layouts, 0);
      prices.minima.assign(tensor.bases(), kInfinity);
      prices.used.assign(tensor.layouts, false);
      for (const ProblemCandidate& candidate : problem.partitions[touch.partition].candidates)
        prices.used[as_index(candidate.layouts[touch.slot])] = true;
      for (size_t l = 0; l < tensor.layouts; ++l) {
        if (prices.used[l]) prices.uses.push_back(l);
        if (!prices.used[l]) prices.price[l] = kInfinity;
      }
    }
    pin_shares_.emplace_back();
    split_conversions(t);
    for (size_t k = 0; k < tensor.touches.size(); ++k) refresh_touch(t, k);
  }
  layouts_.resize(problem.partitions.size());
  reduced_.resize(problem.partitions.size());
  partition_minima_.resize(problem.partitions.size());
  for (size_t p = 0; p < problem.partitions.size(); ++p) {
    for (const ProblemCandidate& candidate : problem.partitions[p].candidates) {
      for (const int layout : candidate.layouts) layouts_[p].push_back(static_cast<uint32_t>(layout));
    }
    refresh_partition(p);
  }
}

// Every choice point whose partitions read the tensor starts with an equal share; so does a pin.
void DualBound::split_conversions(size_t t) {
  const ProblemTensor& tensor = problem_.tensors[t];
  const bool pin = tensor.written && tensor.pinned != kNoLayout;
  size_t payers = pin ? 1 : 0;
  const auto readers = [&](const std::vector<size_t>& touches) {
    return std::count_if(touches.begin(), touches.end(), [&](size_t k) { return !tensor.touches[k].writes; });
  };
  for (const ChoicePointTouch& choice_point : tensor.choice_points) {
    const bool reads = std::any_of(choice_point.touches.begin(), choice_point.touches.end(),
                                   [&](const auto& list) { return readers(list) > 0; });
    if (reads) ++payers;
  }
  for (size_t k = 0; k < tensor.touches.size(); ++k) {
    if (!tensor.touches[k].writes) touches_[t][k].share = tensor.converted;
  }
  for (const ChoicePointTouch& choice_point : tensor.choice_points) {
    for (const auto& list : choice_point.touches) {
      for (const size_t k : list) {
        if (tensor.touches[k].writes) continue;
        const double share = 1.0 / static_cast<double>(payers * static_cast<size_t>(readers(list)));
        for (size_t x = 0; x < tensor.converted.size(); ++x)
          touches_[t][k].share[x] = std::min(touches_[t][k].share[x], tensor.converted[x] * share);
      }
    }
  }
  if (!pin) return;
  pin_shares_[t].assign(tensor.bases(), kInfinity);
  for (size_t b = 0; b < tensor.layouts; ++b)
    pin_shares_[t][b] = tensor.conversion(b, as_index(tensor.pinned)) / static_cast<double>(payers);
}

void DualBound::refresh_touch(size_t t, size_t touch) {
  const ProblemTensor& tensor = problem_.tensors[t];
  TouchPrices& prices = touches_[t][touch];
  for (size_t b = 0; b < tensor.layouts; ++b) {
    if (!bases_[t][b]) continue;
    if (tensor.touches[touch].writes) {
      prices.minima[b] = prices.used[b] ? -prices.price[b] : kInfinity;
      continue;
    }
    double least = kInfinity;
    for (const size_t l : prices.uses) least = std::min(least, prices.share[b * tensor.layouts + l] - prices.price[l]);
    prices.minima[b] = least;
  }
}

void DualBound::refresh_partition(size_t p) {
  const ProblemPartition& partition = problem_.partitions[p];
  std::vector<const double*> prices;  // by slot
  for (size_t slot = 0; slot < partition.tensors.size(); ++slot)
    prices.push_back(touches_[partition.tensors[slot]][touch_of_[p][slot]].price.data());
  reduced_[p].resize(partition.candidates.size());
  const uint32_t* layout = layouts_[p].data();
  double least = kInfinity;
  for (size_t w = 0; w < partition.candidates.size(); ++w) {
    double sum = partition.candidates[w].seconds;
    for (const double* price : prices) sum += price[*layout++];
    reduced_[p][w] = sum;
    least = std::min(least, sum);
  }
  partition_minima_[p] = least;
}

double DualBound::alternative_value(size_t t, const ChoicePointTouch& choice_point, size_t alternative, size_t base,
                                    size_t without) const {
  const ProblemTensor& tensor = problem_.tensors[t];
  if (!problem_.open[choice_point.choice_point][alternative]) return kInfinity;
  const bool absent = base == tensor.layouts;
  const bool writers =
      std::find(choice_point.writes.begin(), choice_point.writes.end(), true) != choice_point.writes.end();
  if (writers && choice_point.writes[alternative] == absent) return kInfinity;
  double sum = 0;
  for (const size_t k : choice_point.touches[alternative]) {
    if (k != without) sum += touches_[t][k].minima[base];
  }
  return sum;
}

std::vector<double> DualBound::without_choice_point(size_t t, size_t choice_point) const {
  const ProblemTensor& tensor = problem_.tensors[t];
  std::vector<double> sums(tensor.bases());
  for (size_t b = 0; b < tensor.bases(); ++b) {
    sums[b] = kInfinity;
    if (!bases_[t][b]) continue;
    double sum = pin_minimum(t, b);
    for (const ChoicePointTouch& other : tensor.choice_points) {
      if (other.choice_point == choice_point) continue;
      double least = kInfinity;
      for (size_t a = 0; a < other.touches.size(); ++a)
        least = std::min(least, alternative_value(t, other, a, b, kNone));
      sum += least;
    }
    sums[b] = sum;
  }
  return sums;
}

double DualBound::tensor_minimum(size_t tensor) const {
  const std::vector<double> sums = without_choice_point(tensor, kNone);
  return *std::min_element(sums.begin(), sums.end());
}

double DualBound::alternative_minimum(size_t choice_point, size_t alternative, size_t without) const {
  if (!problem_.open[choice_point][alternative]) return kInfinity;
  double sum = 0;
  for (const size_t p : problem_.choice_points[choice_point][alternative])
    sum += p == without ? 0.0 : partition_minima_[p];
  return sum;
}

double DualBound::choice_point_minimum(size_t choice_point) const {
  double least = kInfinity;
  for (size_t a = 0; a < problem_.choice_points[choice_point].size(); ++a)
    least = std::min(least, alternative_minimum(choice_point, a, kNone));
  return least;
}

std::vector<double> DualBound::bounds_with(size_t p) const {
  const ProblemPartition& partition = problem_.partitions[p];
  double beside = kInfinity;  // what the other partitions of its choice point pay
  for (size_t a = 0; a < partition.in.size(); ++a) {
    if (partition.in[a]) beside = std::min(beside, alternative_minimum(partition.choice_point, a, p));
  }
  const double rest = bound() - choice_point_minimum(partition.choice_point) + beside;
  std::vector<double> bounds;
  for (const double reduced : reduced_[p]) bounds.push_back(rest + reduced);
  return bounds;
}

double DualBound::bound() const {
  double sum = 0;
  for (size_t s = 0; s < problem_.choice_points.size(); ++s) sum += choice_point_minimum(s);
  for (size_t t = 0; t < problem_.tensors.size(); ++t) {
    if (!problem_.tensors[t].touches.empty()) sum += tensor_minimum(t);
  }
  return sum;
}

std::vector<size_t> DualBound::stuck() const {
  std::vector<size_t> found;
  for (size_t t = 0; t < problem_.tensors.size(); ++t) {
    if (!problem_.tensors[t].touches.empty() && tensor_minimum(t) == kInfinity) found.push_back(t);
  }
  for (size_t p = 0; p < problem_.partitions.size() && found.empty(); ++p) {
    if (partition_minima_[p] == kInfinity) found = problem_.partitions[p].tensors;
  }
  return found;
}

void DualBound::improve(double rise, double until) {
  double before = bound();
  for (int sweep = 1; sweep <= kSweeps; ++sweep) {
    for (size_t k = 0; k < problem_.partitions.size(); ++k) {
      if (k % kUpdatesAClock == 0 && now() > until) return;
      update_partition(sweep % 2 == 1 ? k : problem_.partitions.size() - 1 - k);
    }
    for (size_t t = 0; t < problem_.tensors.size() && sweep % kSweepsAShare == 0; ++t) update_shares(t);
    if (sweep % 10 != 0) continue;
    const double raised = bound();
    if (!(raised - before > rise * raised)) return;
    before = raised;
  }
}

// Moves everything that the tensors know into the partition's prices, then gives the partition's own minima back in
// equal parts.
void DualBound::update_partition(size_t p) {
  if (problem_.partitions[p].candidates.empty()) return;
  for (size_t slot = 0; slot < problem_.partitions[p].tensors.size(); ++slot) pull(p, slot);
  refresh_partition(p);
  push(p);
  refresh_partition(p);
}

void DualBound::pull(size_t p, size_t slot) {
  const ProblemPartition& partition = problem_.partitions[p];
  const size_t t = partition.tensors[slot];
  const size_t touch = touch_of_[p][slot];
  const ProblemTensor& tensor = problem_.tensors[t];
  const std::vector<double> others = without_choice_point(t, partition.choice_point);
  const ChoicePointTouch& choice_point =
      *std::find_if(tensor.choice_points.begin(), tensor.choice_points.end(),
                    [&](const ChoicePointTouch& entry) { return entry.choice_point == partition.choice_point; });
  std::vector<double> with(tensor.bases(), kInfinity);
  double off = kInfinity;
  for (size_t b = 0; b < tensor.bases(); ++b) {
    if (!bases_[t][b]) continue;
    double least_off = kInfinity;
    for (size_t a = 0; a < partition.in.size(); ++a) {
      double& least = partition.in[a] ? with[b] : least_off;
      least = std::min(least, alternative_value(t, choice_point, a, b, touch));
    }
    with[b] += others[b];
    off = std::min(off, least_off + others[b]);
  }
  TouchPrices& prices = touches_[t][touch];
  double smallest = kInfinity;
  for (const size_t l : prices.uses) {
    double least = kInfinity;
    if (tensor.touches[touch].writes) {
      least = with[l];
    } else {
      for (size_t b = 0; b < tensor.layouts; ++b) {
        if (bases_[t][b]) least = std::min(least, with[b] + prices.share[b * tensor.layouts + l]);
      }
    }
    prices.price[l] = least;
    smallest = std::min(smallest, least);
  }
  // A layout that no remaining candidate uses is never used again.
  std::erase_if(prices.uses, [&](size_t l) {
    prices.used[l] = prices.price[l] < kInfinity;
    return !prices.used[l];
  });
  const double level = off < kInfinity ? off : smallest;
  for (const size_t l : prices.uses) prices.price[l] -= level;
  // Another slot of the partition may hold the same tensor.
  refresh_touch(t, touch);
}

void DualBound::push(size_t p) {
  const ProblemPartition& partition = problem_.partitions[p];
  double on = kInfinity;
  double off = kInfinity;
  for (size_t a = 0; a < partition.in.size(); ++a) {
    if (!problem_.open[partition.choice_point][a]) continue;
    double sum = 0;
    for (const size_t q : problem_.choice_points[partition.choice_point][a]) sum += partition_minima_[q];
    double& least = partition.in[a] ? on : off;
    least = std::min(least, sum);
  }
  const double level = partition_minima_[p] - (off < kInfinity && on < kInfinity ? on - off : 0.0);
  const double fraction = 1.0 / static_cast<double>(partition.tensors.size());
  for (size_t slot = 0; slot < partition.tensors.size(); ++slot) {
    const size_t t = partition.tensors[slot];
    TouchPrices& prices = touches_[t][touch_of_[p][slot]];
    std::vector<double> least(prices.price.size(), kInfinity);
    const uint32_t* layout = layouts_[p].data() + slot;
    for (const double reduced : reduced_[p]) {
      least[*layout] = std::min(least[*layout], reduced);
      layout += partition.tensors.size();
    }
    std::erase_if(prices.uses, [&](size_t l) {
      prices.used[l] = least[l] < kInfinity;
      prices.price[l] = prices.used[l] ? prices.price[l] - fraction * (least[l] - level) : kInfinity;
      return !prices.used[l];
    });
    refresh_touch(t, touch_of_[p][slot]);
  }
}

void DualBound::update_shares(size_t t) {
  const ProblemTensor& tensor = problem_.tensors[t];
  if (tensor.touches.size() <= 2 && pin_shares_[t].empty()) return;  // a single reader pays everything
  std::vector<bool> read(tensor.layouts, false);
  for (size_t k = 0; k < tensor.touches.size(); ++k) {
    for (const size_t l : touches_[t][k].uses) read[l] = read[l] || !tensor.touches[k].writes;
  }
  for (size_t b = 0; b < tensor.layouts; ++b) {
    if (!bases_[t][b]) continue;
    for (size_t l = 0; l < tensor.layouts; ++l) {
      const double seconds = tensor.conversion(b, l);
      if (read[l] && seconds > 0 && seconds < kInfinity) share_again(t, b, l);
    }
  }
  for (size_t k = 0; k < tensor.touches.size(); ++k) refresh_touch(t, k);
}

// Readers whose share makes no difference hand it to readers for whom it might.
void DualBound::share_again(size_t t, size_t base, size_t layout) {
  const ProblemTensor& tensor = problem_.tensors[t];
  const size_t at = base * tensor.layouts + layout;
  const bool pin = !pin_shares_[t].empty() && layout == as_index(tensor.pinned);
  const auto slack = [&](size_t k) {
    const TouchPrices& prices = touches_[t][k];
    if (!prices.used[layout]) return prices.share[at];
    return std::clamp(prices.share[at] - prices.price[layout] - prices.minima[base], 0.0, prices.share[at]);
  };
  struct Payer {
    const ChoicePointTouch* choice_point;
    double budget;  // what remains of it
  };
  std::vector<Payer> payers;
  double pool = tensor.conversion(base, layout) - (pin ? pin_shares_[t][base] : 0.0);
  for (const ChoicePointTouch& choice_point : tensor.choice_points) {
    double needed = 0;
    bool reads = false;
    for (size_t a = 0; a < choice_point.touches.size(); ++a) {
      double sum = 0;
      for (const size_t k : choice_point.touches[a]) {
        if (tensor.touches[k].writes || !problem_.open[choice_point.choice_point][a]) continue;
        reads = true;
        sum += touches_[t][k].share[at] - slack(k);
      }
      needed = std::max(needed, sum);
    }
    if (!reads) continue;
    payers.push_back({&choice_point, needed});
    pool -= needed;
  }
  if (pool < 0) pool = 0;
  const double extra = pool / static_cast<double>(payers.size() + (pin ? 1 : 0));
  if (pin) pin_shares_[t][base] += extra;
  for (const Payer& payer : payers) {
    std::vector<std::pair<size_t, double>> changed;
    for (size_t a = 0; a < payer.choice_point->touches.size(); ++a) {
      if (!problem_.open[payer.choice_point->choice_point][a]) continue;
      double sum = 0;
      size_t readers = 0;
      for (const size_t k : payer.choice_point->touches[a]) {
        if (tensor.touches[k].writes) continue;
        sum += touches_[t][k].share[at] - slack(k);
        ++readers;
      }
      for (const size_t k : payer.choice_point->touches[a]) {
        if (tensor.touches[k].writes) continue;
        const double more = (payer.budget + extra - sum) / static_cast<double>(readers);
        const double share = touches_[t][k].share[at] - slack(k) + more;
        const auto known =
            std::find_if(changed.begin(), changed.end(), [&](const auto& entry) { return entry.first == k; });
        if (known == changed.end())
          changed.emplace_back(k, share);
        else
          known->second = std::min(known->second, share);
      }
    }
    for (const auto& [k, share] : changed) touches_[t][k].share[at] = share;
  }
}

}  // namespace millrace
