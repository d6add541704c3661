#include "measure/unpromising.h"

#include <algorithm>

namespace millrace {
namespace {

class Alternatives {
 public:
  Alternatives(const Candidates& candidates, const PartitionClasses& classes)
      : candidates_(candidates), classes_(classes), keeps_(classes.all().size(), false) {}

  std::vector<size_t> unpromising() {
    for (const ChoicePoint& choice_point : candidates_.choice_points) look_at(choice_point);
    std::vector<size_t> found;
    for (size_t k = 0; k < keeps_.size(); ++k) {
      if (!keeps_[k] && !classes_.all()[k].members.empty() && !is_wanted(classes_.all()[k])) found.push_back(k);
    }
    return found;
  }

 private:
  enum class Unmeasured { endless, as_estimated };

  void look_at(const ChoicePoint& choice_point) {
    double best = kNotMeasured;
    for (const std::vector<int>& each : choice_point.alternatives)
      best = std::min(best, seconds(each, Unmeasured::endless));
    for (const std::vector<int>& each : choice_point.alternatives) {
      if (seconds(each, Unmeasured::as_estimated) > kClearlySlower * best) continue;
      for (const int partition : each) keeps_[number_of_class(partition)] = true;
    }
  }

  static bool is_wanted(const PartitionClass& each) {
    return std::any_of(each.trials.begin(), each.trials.end(),
                       [](const Trial& trial) { return trial.wanted && !trial.known; });
  }

  size_t number_of_class(int partition) const { return classes_.number_of_class(static_cast<size_t>(partition)); }

  double seconds(const std::vector<int>& alternative, Unmeasured unmeasured) const {
    double sum = 0;
    for (const int partition : alternative) {
      const double measured = classes_.all()[number_of_class(partition)].best;
      const bool estimated = measured == kNotMeasured && unmeasured == Unmeasured::as_estimated;
      sum += estimated ? least_estimate(candidates_.partitions[as_index(partition)]) : measured;
    }
    return sum;
  }

  const Candidates& candidates_;
  const PartitionClasses& classes_;
  std::vector<bool> keeps_;  // by class
};

}  // namespace

std::vector<size_t> unpromising_classes(const Candidates& candidates, const PartitionClasses& classes) {
  return Alternatives(candidates, classes).unpromising();
}

}  // namespace millrace
