// How long compilations and trials take, learnt while exploring: how many fit before a deadline, and when a trial
// counts as hung. Test: tests/measure/trial_times_test.cpp
#pragma once

#include <cstddef>
#include <map>

#include "base/deadline.h"

namespace millrace {

class TrialTimes {
 public:
  // No trial may take longer than `hang_seconds`. `compilers`: how many compile at the same time.
  TrialTimes(double hang_seconds, size_t compilers) : hang_seconds_(hang_seconds), compilers_(compilers) {}

  // A kernel counts as the number of small kernels that take as long (compile_cost.h).
  void note_compiled(double kernels, double seconds);
  void note_tried(size_t partition_class, double seconds);

  // How many kernels can be compiled and tried until then.
  double kernels_until(const Deadline& end) const;
  // Whether a kernel that takes as long as this many small ones can be compiled until then.
  bool has_time_for(double kernels, const Deadline& end) const;
  // Whether a trial probably ends before the deadline.
  bool fits(const Deadline& end) const { return end.left() > mean_trial(); }

  // The seconds after which a trial counts as hung: a share of the time left, so that a hanging kernel does not cost
  // the plan. The first trial of a class gets a larger share, since it also computes the reference data; later ones get
  // a multiple of the slowest so far.
  double timeout(size_t partition_class, const Deadline& end) const;
  // Whether a trial that did not end in this time would never end. Otherwise it may only have needed more time.
  bool is_surely_hung(double timeout_seconds) const { return timeout_seconds >= hang_seconds_; }

 private:
  double mean_trial() const { return trials_ > 0 ? trial_seconds_ / trials_ : 0; }

  double hang_seconds_;
  size_t compilers_;
  double kernel_seconds_ = 0;  // compile time per kernel in the last batch; 0: unknown
  double trial_seconds_ = 0;   // of all trials
  double trials_ = 0;
  std::map<size_t, double> slowest_;  // by class
};

}  // namespace millrace
