// When a trial on the CPU has samples enough. Most candidates are far from the fastest, and a host's speed changes more
// from one second to the next than many samples in a row would show. Test: tests/measure/sampling_test.cpp
#pragma once

#include <vector>

namespace millrace {

class Sampling {
 public:
  // `first`: seconds of a run before the samples, which warms the caches. `best`: of the fastest candidate so far that
  // this one competes with; 0: unknown. `seconds`: to spend on the samples of one that may be the fastest.
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
