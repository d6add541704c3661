// Decides when a trial on the CPU has enough samples. Most candidates are far from the fastest, and more samples in a
// row would not help: a host's speed changes more from one second to the next than they would show. Test:
// tests/measure/sampling_test.cpp
#pragma once

#include <vector>

namespace millrace {

class Sampling {
 public:
  // `first`: seconds of the run before the samples, which warms the caches. `best`: seconds of the fastest candidate so
  // far that competes with this one; 0: unknown. `seconds`: how long to sample a candidate that may be the fastest.
  Sampling(double first, double best, double seconds) : fastest_(first), best_(best), seconds_(seconds) {}

  void add(double sample);
  bool is_enough() const;
  const std::vector<double>& samples() const { return samples_; }

 private:
  bool is_beaten() const;
  bool has_taken_long() const;

  double fastest_;
  double best_;
  double seconds_;
  double spent_ = 0;
  std::vector<double> samples_;
};

}  // namespace millrace
