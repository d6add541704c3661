// Proves how fast a step can be at most, with untried candidates at their lower bounds. Candidates that cannot be part
// of a faster step are not tried. The exploration is complete when no others are left. Test:
// tests/measure/explore_test.cpp
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "measure/explore.h"
#include "measure/lower_bounds.h"
#include "measure/wanted_trials.h"

namespace millrace {

class Certifier {
 public:
  // All references must outlive this.
  Certifier(const Knowledge& knowledge, const ExploreSettings& settings)
      : knowledge_(knowledge),
        settings_(settings),
        bounds_(knowledge.graph, knowledge.candidates.domains, settings.ceilings, settings.trial, settings.threads) {}

  // Called again and again: from time to time, gives up the candidates that cannot be part of a faster step.
  void look(const Deadline& end);
  // Called when nothing is left to try: marks what a faster step could use as wanted. False if there is nothing, or no
  // time to find it.
  bool want_last(const Deadline& end);
  // The latest proof; without one, the lower bound that ignores layouts. `best_step`: 0 if none is known. Nothing
  // without ceilings.
  std::optional<Certificate> certificate(double best_step);

 private:
  using Room = std::map<std::vector<int>, double>;  // by layouts: the least that the rest of a step takes

  bool can_prove() const;
  bool is_listed_whole() const;
  std::optional<Certificate> proven() const;
  double least_seconds();
  void prove(double seconds);
  std::vector<Room> rooms() const;
  void give_up_hopeless();
  double limit() const { return proof_->step * (1 - Certificate::kFaster); }
  bool want_candidates(const Wanted::Candidate& wanted);
  bool want_conversions(const Wanted::Conversion& wanted);

  Knowledge knowledge_;
  const ExploreSettings& settings_;
  LowerBounds bounds_;
  BoundedMeasurements bounded_;
  std::optional<StepProof> proof_;
  double look_at_ = 0;
};

}  // namespace millrace
