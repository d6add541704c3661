// Random trials, randomly chosen, left, wanted, measured and added: the next one is that of a plain scan.
#include "measure/trial_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace millrace {
namespace {

// The specification of the queue.
std::optional<size_t> next_by_scan(const std::vector<Trial>& trials, Expectation expectation) {
  std::optional<size_t> best;
  std::optional<size_t> wanted;
  double best_seconds = 0;
  for (size_t k = 0; k < trials.size(); ++k) {
    const Trial& trial = trials[k];
    if (trial.chosen || trial.known) continue;
    if (trial.baseline) return k;
    if (trial.wanted) wanted = wanted.value_or(k);
    const double seconds = expectation.seconds(trial.kind, trial.candidate->estimate);
    if (best && seconds >= best_seconds) continue;
    best = k;
    best_seconds = seconds;
  }
  return wanted ? wanted : best;
}

class TrialQueueTest : public testing::TestWithParam<uint32_t> {
 protected:
  size_t draw(size_t below) { return chance_() % below; }

  // Few estimates and few kinds, so that many are equal.
  void add() {
    Trial trial;
    candidates_.push_back({{}, KernelConfig(), 1e-6 * static_cast<double>(1 + draw(5))});
    trial.candidate = &candidates_.back();
    trial.kind.family = static_cast<int>(draw(2));
    trial.kind.shape = draw(3) == 0 ? trial.kind.family : trial.kind.family + 2 * static_cast<int>(1 + draw(4));
    trial.baseline = draw(12) == 0;
    trials_.push_back(trial);
    queue_.put(trials_.size() - 1, trials_.back());
  }

  void measure(size_t number) {
    const ConfigKind& kind = trials_[number].kind;
    trials_[number].known = true;
    const double ratio = static_cast<double>(1 + draw(4));
    partition_ratios_.add(kind.family, ratio);
    if (kind.shape != kind.family) partition_ratios_.add(kind.shape, ratio);
    all_ratios_.add(kind.family, ratio);
  }

  void change_one() {
    const size_t number = draw(trials_.size());
    Trial& trial = trials_[number];
    switch (draw(6)) {
      case 0: return add();
      case 1: return trial.known ? void() : measure(number);
      case 2: trial.wanted = true; return queue_.put(number, trial);
      case 3: trial.baseline = true; return queue_.put(number, trial);
      case 4: all_ratios_.add(static_cast<int>(draw(2)), static_cast<double>(1 + draw(9))); return;
      default:
        if (!trial.chosen || trial.known) return;
        trial.chosen = false;
        return queue_.put(number, trial);
    }
  }

  std::mt19937 chance_{GetParam()};
  std::deque<Candidate> candidates_;
  std::vector<Trial> trials_;
  Ratios partition_ratios_;
  Ratios all_ratios_;
  TrialQueue queue_;
};

TEST_P(TrialQueueTest, AgreesWithAPlainScan) {
  EXPECT_FALSE(queue_.next(trials_, {partition_ratios_, all_ratios_}));
  for (int k = 0; k < 40; ++k) add();
  size_t chosen = 0;
  for (int step = 0; step < 600; ++step) {
    const std::optional<size_t> next = queue_.next(trials_, {partition_ratios_, all_ratios_});
    ASSERT_EQ(next, next_by_scan(trials_, {partition_ratios_, all_ratios_})) << "step " << step;
    if (next && draw(4) != 0) {
      trials_[*next].chosen = true;
      ++chosen;
    }
    if (draw(3) == 0) change_one();
  }
  EXPECT_GT(chosen, 40U);
  // Continues until none is left.
  while (const std::optional<size_t> next = queue_.next(trials_, {partition_ratios_, all_ratios_})) {
    ASSERT_EQ(next, next_by_scan(trials_, {partition_ratios_, all_ratios_}));
    trials_[*next].chosen = true;
  }
  EXPECT_FALSE(next_by_scan(trials_, {partition_ratios_, all_ratios_}));
}

INSTANTIATE_TEST_SUITE_P(Random, TrialQueueTest, testing::Range(0U, 20U));

}  // namespace
}  // namespace millrace
