#include "measure/step_watch.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace millrace {
namespace {

constexpr double kSelectEvery = 1;      // seconds, at least
constexpr double kSelectShare = 0.05;   // largest share of the time for selections during which nothing is measured
constexpr double kPointEvery = 0.01;    // of the time since the beginning, so that long curves stay short
constexpr double kSelectOfRest = 0.05;  // largest share of the time left for one selection

}  // namespace

// Every partition with its fastest candidate so far. A choice point none of whose alternatives is measured adds
// nothing.
double StepWatch::bound() const {
  double bound = 0;
  for (const ChoicePoint& choice_point : candidates_.choice_points) {
    double best = kNotMeasured;
    for (const std::vector<int>& alternative : choice_point.alternatives) {
      double sum = 0;
      for (const int partition : alternative) sum += classes_.class_of(static_cast<size_t>(partition)).best;
      best = std::min(best, sum);
    }
    if (best < kNotMeasured) bound += best;
  }
  return bound;
}

// Called once every partition has a measured candidate.
void StepWatch::select() {
  if (!settings_.select || classes_.has_baselines_left()) return;
  if (!selecting_.valid() && now() >= select_at_) {
    const double begin = now();
    const double seconds = std::min(kSelectOfRest * settings_.deadline.left(), std::numeric_limits<double>::max());
    selecting_ = run_in_background(
        mode_, [this, seconds, so_far = measurements_.measured()] { return settings_.select(so_far, seconds); });
    select_at_ = now() + std::max(kSelectEvery, (now() - begin) / kAssemblyShare);
  }
  if (!selecting_.valid() || !is_ready(selecting_)) return;
  const double begin = now();
  if (const double seconds = selecting_.get(); seconds > 0 && (selected_ == 0 || seconds < selected_))
    selected_ = seconds;
  select_at_ = std::max(select_at_, now() + (now() - begin) / kSelectShare);
}

void StepWatch::add_point(double tried) {
  const ExplorationPoint point{seconds(), tried, selected_, bound()};
  if (!points_.empty() && point.seconds < points_.back().seconds * (1 + kPointEvery) + kPointEvery) return;
  points_.push_back(point);
}

void StepWatch::tell(ExploreProgress progress) {
  select();
  add_point(progress.tried);
  if (!settings_.progress) return;
  progress.bound = bound();
  progress.seconds = selected_;
  progress.passed = seconds();
  progress.left = settings_.deadline.is_never() ? 0 : settings_.deadline.left();
  settings_.progress(progress);
}

std::vector<ExplorationPoint> StepWatch::finish(double tried) {
  points_.push_back({seconds(), tried, selected_, bound()});
  return points_;
}

}  // namespace millrace
