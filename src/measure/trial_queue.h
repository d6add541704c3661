// Which trial of a class is next: one that must be tried, else one that a selection wants, else the one that is
// expected to be fastest. What is expected is the model's estimate times a correction, which all trials of a shape
// share: among them the order of the estimates is that of the expectations, whatever is measured. So each shape has a
// queue of its own, and only the fronts of these are compared. Test: tests/measure/trial_queue_test.cpp
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

// A candidate to try, by whichever of the equal partitions has it.
struct Trial {
  const Partition* partition = nullptr;
  const Candidate* candidate = nullptr;
  TensorId converted;  // valid: a conversion of this tensor
  std::string text;
  ConfigKind kind;
  bool like_another = false;  // which is tried in its place, unless it is a first or a wanted one
  bool first = false;         // of those without which there would be no plan: tried whatever the budget
  bool wanted = false;        // by a selection
  bool chosen = false;
  bool known = false;  // its outcome

  bool is_open() const { return !chosen && !known; }
};

class TrialQueue {
 public:
  // A trial that is open; again when it is open again, or has become a first or a wanted one.
  void put(size_t number, const Trial& trial);

  // The number of the open trial that is next, the lowest of equals. `trials`: those that were put, by number.
  std::optional<size_t> next(const std::vector<Trial>& trials, Expectation expectation);

 private:
  // Estimates and numbers, the least in front. One that is not open any more stays until it is in front: then it goes.
  using Waiting =
      std::priority_queue<std::pair<double, size_t>, std::vector<std::pair<double, size_t>>, std::greater<>>;
  struct OfKind {
    ConfigKind kind;
    Waiting waiting;
  };

  static bool has_open(Waiting& waiting, const std::vector<Trial>& trials);

  Waiting first_;  // by number alone, as the wanted ones
  Waiting wanted_;
  std::map<int, OfKind> kinds_;  // by shape
};

}  // namespace millrace
