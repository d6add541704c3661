#include "measure/wanted_trials.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace millrace {
namespace {

constexpr size_t kWantedCandidates = 12;  // with the layouts of a candidate that a selection uses
constexpr double kWantedShare = 0.25;     // largest share of the time for selections during which nothing is measured
constexpr double kLongestShare = 0.1;     // of the time left, for one selection

}  // namespace

void WantedTrials::want(const Deadline& end) {
  if (!settings_.wanted || classes_.has_baselines_left()) return;
  if (!wanting_.valid()) {
    if (end.left() <= wanting_seconds_ || (settings_.exhaustive && now() < look_at_)) return;
    if (mode_ == Background::when_requested && wanting_seconds_ > kWantedShare * (now() - wanted_at_)) return;
    wanted_at_ = now();
    wanting_ =
        run_in_background(mode_, [this, seconds = kLongestShare * end.left(), expecting = measurements_.expected()] {
          return settings_.wanted(expecting, seconds);
        });
    look_at_ = now() + (now() - wanted_at_) / kAssemblyShare;
  }
  if (!is_ready(wanting_)) return;
  const Wanted wanted = wanting_.get();
  wanting_seconds_ = now() - wanted_at_;
  wanted_at_ = now();
  take(wanted);
}

bool WantedTrials::want_last() {
  if (!settings_.wanted || !settings_.exhaustive || classes_.has_baselines_left()) return false;
  if (wanting_.valid()) wanting_.wait();
  wanting_ = {};
  return take(settings_.wanted(measurements_.expected(), kLongestShare * settings_.deadline.left()));
}

// Returns whether any of it is still to be tried.
bool WantedTrials::take(const Wanted& wanted) {
  bool open = false;
  for (const Wanted::Candidate& candidate : wanted.candidates) open |= want_candidate(candidate);
  for (const Wanted::Conversion& conversion : wanted.conversions) open |= want_conversion(conversion);
  return open;
}

// Marks the candidate itself as wanted and, once that is measured, others with its layouts.
bool WantedTrials::want_candidate(const Wanted::Candidate& wanted) {
  const auto number =
      std::find_if(candidates_.partitions.begin(), candidates_.partitions.end(),
                   [&](const PartitionCandidates& each) { return each.partition.name == wanted.partition; });
  if (number == candidates_.partitions.end()) return false;
  const std::optional<TrialId> taken =
      classes_.find(static_cast<size_t>(number - candidates_.partitions.begin()), wanted.candidate);
  if (!taken) return false;
  bool open = false;
  if (!classes_.trial(*taken).known) {
    open = classes_.want(*taken);
    if (std::holds_alternative<GemmConfig>(classes_.trial(*taken).candidate->config)) return open;
  }
  return settings_.refinements ? want_others_under(*taken) || open : open;
}

bool WantedTrials::want_others_under(const TrialId& taken) {
  refinements_.add_for(taken);
  const PartitionClass& its_class = classes_.all()[taken.partition_class];
  const std::vector<int>& layouts = its_class.trials[taken.number].candidate->layouts;
  Expectation expectation = classes_.expectation(its_class);
  std::vector<std::pair<double, size_t>> under;
  for (size_t k = 0; k < its_class.trials.size(); ++k) {
    const Trial& trial = its_class.trials[k];
    if (trial.candidate->layouts != layouts) continue;
    under.emplace_back(expectation.seconds(trial.kind, trial.candidate->estimate), k);
  }
  std::sort(under.begin(), under.end());
  if (under.size() > kWantedCandidates) under.resize(kWantedCandidates);
  bool open = false;
  for (const auto& [seconds, k] : under) open |= classes_.want({taken.partition_class, k});
  return open;
}

bool WantedTrials::want_conversion(const Wanted::Conversion& wanted) {
  bool open = false;
  for (size_t k = 0; k < graph_.tensors.size(); ++k) {
    if (graph_.tensors[k].name != wanted.tensor) continue;
    conversions_.add(TensorId(k), wanted.from, wanted.to);
    for (const ConversionTrial& conversion : conversions_.added()) {
      if (conversion.tensor == TensorId(k) && conversion.from == wanted.from && conversion.to == wanted.to)
        open |= classes_.want(conversion.trial);
    }
  }
  return open;
}

}  // namespace millrace
