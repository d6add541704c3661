#include "measure/trial_queue.h"

namespace millrace {

void TrialQueue::put(size_t number, const Trial& trial) {
  if (trial.baseline) baselines_.emplace(0, number);
  if (trial.wanted) wanted_.emplace(0, number);
  if (trial.represented) return;
  ShapeQueue& queue = shapes_[trial.kind.shape];
  queue.kind = {trial.kind.family, trial.kind.shape};
  queue.waiting.emplace(trial.candidate->estimate, number);
}

std::optional<size_t> TrialQueue::next(const std::vector<Trial>& trials, Expectation expectation) {
  for (Waiting* const before_all : {&baselines_, &wanted_}) {
    if (has_open(*before_all, trials)) return before_all->top().second;
  }
  std::optional<std::pair<double, size_t>> best;
  for (auto& [shape, queue] : shapes_) {
    if (!has_open(queue.waiting, trials)) continue;
    const auto& [estimate, number] = queue.waiting.top();
    const std::pair expected(expectation.seconds(queue.kind, estimate), number);
    if (!best || expected < *best) best = expected;
  }
  if (!best) return std::nullopt;
  return best->second;
}

bool TrialQueue::has_open(Waiting& waiting, const std::vector<Trial>& trials) {
  while (!waiting.empty() && !trials[waiting.top().second].is_open()) waiting.pop();
  return !waiting.empty();
}

}  // namespace millrace
