// Follows the best step during an exploration: tells the progress, and keeps a curve of it over time. Test:
// tests/measure/explore_test.cpp
#pragma once

#include <future>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "measure/background.h"
#include "measure/explore.h"
#include "measure/measurements_maker.h"
#include "measure/partition_classes.h"

namespace millrace {

class StepWatch {
 public:
  // All references must outlive this.
  StepWatch(const Candidates& candidates, const ExploreSettings& settings, const PartitionClasses& classes,
            MeasurementsMaker& measurements, Background mode)
      : candidates_(candidates), settings_(settings), classes_(classes), measurements_(measurements), mode_(mode) {}

  // `progress`: the counts and the phase; the rest is added. Makes a new selection from time to time.
  void tell(ExploreProgress progress);
  // The curve, with a point for now at its end.
  std::vector<ExplorationPoint> finish(double tried);
  double seconds() const { return now() - begin_; }
  // Seconds of the best step so far; 0: none yet.
  double best() const { return selected_; }

 private:
  double bound() const;
  void select();
  void add_point(double tried);

  const Candidates& candidates_;
  const ExploreSettings& settings_;
  const PartitionClasses& classes_;
  MeasurementsMaker& measurements_;
  const Background mode_;
  const double begin_ = now();
  double selected_ = 0;   // seconds of the best selection so far
  double select_at_ = 0;  // time of the next selection
  std::future<double> selecting_;
  std::vector<ExplorationPoint> points_;
};

}  // namespace millrace
