// The median of repeated timings and its confidence interval. Timings are skewed and have outliers, so nothing here
// assumes a distribution. Test: tests/measure/statistics_test.cpp
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

// The interval is between two order statistics. The number of n independent samples below the true median is binomial,
// B(n, 1/2). So the k-th smallest and the k-th largest sample enclose the median unless fewer than k samples are on one
// side of it, which has probability 2 P(B(n, 1/2) < k). We take the largest k that keeps this within 5 %. For n < 6
// there is none (2 / 2^5 > 5 %), and the interval is the whole range, which covers with probability 1 - 2^(1-n).
// Needs at least one sample; none may be NaN.
Estimate estimate(std::vector<double> samples);

// The k above, where order statistics count from 1. 0 if even the whole range covers the median with a probability
// below 95 %.
int64_t interval_rank(int64_t samples);

// Whether the interval extends at most `relative` times the median to either side. Never for fewer than 6 samples.
bool tight(const Estimate& estimate, double relative);

}  // namespace millrace
