#include "measure/trial_queue.h"

namespace millrace {

void TrialQueue::put(size_t number, const Trial& trial) {
  if (trial.first) first_.emplace(0, number);
  if (trial.wanted) wanted_.emplace(0, number);
  if (trial.like_another) return;
  OfKind& of = kinds_[trial.kind.shape];
  of.kind = {trial.kind.family, trial.kind.shape};
  of.waiting.emplace(trial.candidate->estimate, number);
}

std::optional<size_t> TrialQueue::next(const std::vector<Trial>& trials, Expectation expectation) {
  for (Waiting* const before_all : {&first_, &wanted_}) {
    if (has_open(*before_all, trials)) return before_all->top().second;
  }
  std::optional<std::pair<double, size_t>> best;
  for (auto& [shape, of] : kinds_) {
    if (!has_open(of.waiting, trials)) continue;
    const auto& [estimate, number] = of.waiting.top();
    const std::pair expected(expectation.seconds(of.kind, estimate), number);
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
