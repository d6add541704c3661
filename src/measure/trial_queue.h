// The next trial of a class: a baseline, else one that a selection wants, else the one that is expected to be fastest.
// The expectation is the model's estimate times a correction that all trials of a shape share, so new measurements
// never change the order within a shape. Each shape has its own queue, and next() compares only their fronts. Test:
// tests/measure/trial_queue_test.cpp
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "candidates/candidates.h"
#include "measure/expectation.h"

namespace millrace {

// A candidate to try, of any of the equal partitions.
struct Trial {
  const Partition* partition = nullptr;
  const Candidate* candidate = nullptr;
  TensorId converted;  // valid: a conversion of this tensor
  std::string text;
  ConfigKind kind;
  bool represented = false;  // another of its timing class is tried instead, unless this is a baseline or wanted
  bool baseline = false;     // every plan needs it: tried with any budget
  bool wanted = false;       // by a selection
  bool chosen = false;
  bool known = false;       // has an outcome
  bool unfinished = false;  // it had too little time: it counts as hung, but may be right
  bool assumed = false;     // it was not tried, but has its expected time
  bool recalled = false;    // an earlier run tried it; not yet listed in this one
  bool hopeless = false;    // no plan with it can be faster than the best one so far

  bool is_open() const { return !chosen && !known && (!hopeless || baseline || wanted); }
  // Whether a trial has determined its time, or that it has none.
  bool is_settled() const { return known && !unfinished && !assumed; }
};

class TrialQueue {
 public:
  // Adds an open trial. Call again if it is open again, or has become a baseline or wanted.
  void put(size_t number, const Trial& trial);

  // The number of the next open trial, the lowest among equals. `trials`: those that were put, by number.
  std::optional<size_t> next(const std::vector<Trial>& trials, Expectation expectation);

 private:
  // Estimates and numbers, the least in front. A trial that is no longer open is removed when it reaches the front.
  using Waiting =
      std::priority_queue<std::pair<double, size_t>, std::vector<std::pair<double, size_t>>, std::greater<>>;
  struct ShapeQueue {
    ConfigKind kind;
    Waiting waiting;
  };

  static bool has_open(Waiting& waiting, const std::vector<Trial>& trials);

  Waiting baselines_;  // by number only, as wanted_
  Waiting wanted_;
  std::map<int, ShapeQueue> shapes_;
};

}  // namespace millrace
