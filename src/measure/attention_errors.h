// The bounds of attention_reference_data.h as coefficients, for both oracles.
// Test: tests/measure/attention_reference_data_test.cpp
#pragma once

#include "candidates/candidates.h"

namespace millrace {

// The power of two by which queries are scaled, so that the scores have a deviation of about 1.5 and the softmax is not
// flat. `product`: the size of the product of a drawn query's and a key's element. A power of two keeps the queries
// representable.
int power_of_queries(double scale, int64_t inner, double product);

class AttentionErrors {
 public:
  explicit AttentionErrors(const Attention& attention) : attention_(attention) {}

  // The error of a score: per_magnitude · Σ |q| · max |k| + per_log_sum · |log_sum| of its row.
  struct ScoreError {
    double per_magnitude = 0;
    double per_log_sum = 0;
  };
  ScoreError of_scores(double scale) const;

  // The errors of an exponential and of the sum of a row's exponentials, besides that of the score. Both are relative.
  double of_exponential() const;
  double of_sum() const;

  // The error of a sum of products over the values, relative to the sum of their magnitudes.
  double of_values() const;

  // In backward: the relative error of a weight in a sum over queries or keys, besides that of the score.
  struct WeightError {
    double per_log_sum = 0;
    double constant = 0;
  };
  WeightError of_weights() const;

  // The relative error of the few roundings besides the sums.
  static double of_steps();

 private:
  const Attention& attention_;
};

}  // namespace millrace
