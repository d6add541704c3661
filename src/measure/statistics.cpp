#include "measure/statistics.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace millrace {

int64_t interval_rank(int64_t samples) {
  constexpr double kOutside = 0.05;
  const auto n = static_cast<double>(samples);
  // Logarithms, since 2^-n is 0 in a double from n = 1075 on.
  double log_term = -n * std::log(2.0);  // of P(B = 0)
  double below = 0;                      // P(B < k)
  for (int64_t k = 0; 2 * k <= samples; ++k) {
    below += std::exp(log_term);  // P(B <= k) = P(B < k + 1)
    if (2 * below > kOutside) return k;
    log_term += std::log((n - static_cast<double>(k)) / static_cast<double>(k + 1));
  }
  return samples / 2;
}

Estimate estimate(std::vector<double> samples) {
  assert(!samples.empty());
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  const auto rank = static_cast<size_t>(std::max<int64_t>(interval_rank(static_cast<int64_t>(n)), 1));
  const double lower = samples[(n - 1) / 2];
  const double median = lower + (samples[n / 2] - lower) / 2;
  return {median, samples[rank - 1], samples[n - rank], static_cast<int64_t>(n)};
}

bool tight(const Estimate& estimate, double relative) {
  if (interval_rank(estimate.samples) == 0) return false;
  const double reach = std::max(estimate.median - estimate.low, estimate.high - estimate.median);
  return reach <= relative * estimate.median;
}

}  // namespace millrace
