// Chooses as next trials what a selection wants.
//
// The fastest candidates of two partitions may need different layouts. So from time to time this makes a selection in
// which every untried candidate and conversion is as fast as expected, and marks what that selection uses as wanted.
// Test: tests/measure/explore_test.cpp
#pragma once

#include <future>

#include "candidates/candidates.h"
#include "measure/background.h"
#include "measure/conversion_trials.h"
#include "measure/explore.h"
#include "measure/measurements_maker.h"
#include "measure/partition_classes.h"
#include "measure/refinements.h"

namespace millrace {

// All must outlive WantedTrials.
struct Knowledge {
  const Graph& graph;
  const Candidates& candidates;
  PartitionClasses& classes;
  ConversionTrials& conversions;
  Refinements& refinements;
  MeasurementsMaker& measurements;
};

class WantedTrials {
 public:
  WantedTrials(const Knowledge& knowledge, const ExploreSettings& settings, Background mode)
      : graph_(knowledge.graph),
        candidates_(knowledge.candidates),
        classes_(knowledge.classes),
        conversions_(knowledge.conversions),
        refinements_(knowledge.refinements),
        measurements_(knowledge.measurements),
        settings_(settings),
        mode_(mode) {}

  // Starts a selection if it is time for one, and takes the result of a finished one.
  void want(const Deadline& end);
  // Called when the only candidates left are represented by another one of their timing class. Returns whether a
  // selection uses one of them.
  bool want_last();

 private:
  bool take(const Wanted& wanted);
  bool want_candidate(const Wanted::Candidate& wanted);
  bool want_others_under(const TrialId& taken);
  bool want_conversion(const Wanted::Conversion& wanted);

  const Graph& graph_;
  const Candidates& candidates_;
  PartitionClasses& classes_;
  ConversionTrials& conversions_;
  Refinements& refinements_;
  MeasurementsMaker& measurements_;
  const ExploreSettings& settings_;
  Background mode_;
  std::future<Wanted> wanting_;
  double wanted_at_ = 0;
  double wanting_seconds_ = 0;  // duration of the last selection
  double look_at_ = 0;          // earliest time of the next selection of an exhaustive search
};

}  // namespace millrace
