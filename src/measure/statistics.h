// What repeated timings say: a median, and how far to trust it. Timings are skewed and have outliers, so nothing here
// assumes a distribution.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

struct Estimate {
  double median = 0;
  double low = 0;  // the 95 % confidence interval of the median
  double high = 0;
  int64_t samples = 0;
};

// The interval is between two order statistics. Of n independent samples the number below the true median is binomial,
// B(n, 1/2); so the k-th smallest and the k-th largest enclose the median unless fewer than k samples fall on one of
// its sides, which happens with probability 2 P(B(n, 1/2) < k). We take the largest k that keeps this within 5 %. For
// n < 6 there is none (2 / 2^5 > 5 %), and the interval is the whole range, which covers with 1 - 2^(1-n).
// At least one sample; none may be NaN.
Estimate estimate(std::vector<double> samples);

// The k above: order statistics count from 1; 0 when the whole range covers with less than 95 %.
int64_t interval_rank(int64_t samples);

// Whether the interval reaches no farther than `relative` of the median to either side; never of fewer than 6 samples.
bool tight(const Estimate& estimate, double relative);

}  // namespace millrace
