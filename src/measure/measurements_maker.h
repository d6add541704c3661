// Outcomes of trials → Measurements: the measured times and, for a selection that decides what to try next, expected
// times of the rest. Test: tests/measure/partition_classes_test.cpp
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "measure/conversion_trials.h"
#include "measure/explore.h"
#include "measure/lower_bounds.h"
#include "measure/measurements.h"
#include "measure/partition_classes.h"

namespace millrace {

// The largest share of the time for assembling measurements: nothing is tried meanwhile.
inline constexpr double kAssemblyShare = 0.02;

class MeasurementsMaker {
 public:
  // All references must outlive this.
  MeasurementsMaker(const Graph& graph, const Candidates& candidates, const PartitionClasses& classes,
                    ConversionTrials& conversions)
      : graph_(graph),
        candidates_(candidates),
        classes_(classes),
        conversions_(conversions),
        parsed_(candidates.partitions.size()) {}

  Measurements measured();
  // Measured times, and expected times for other layouts.
  Measurements expected();
  // Measured times, and lower bounds for everything that is not tried.
  enum class Listed {
    all,
    without_refinements,  // a candidate may have others with its layouts
  };
  BoundedMeasurements bounded(LowerBounds& bounds, Listed listed);
  // Lowers the bounds where measured times are below them.
  void note_measured(LowerBounds& bounds) const;
  // A partition's fastest candidate for each combination of layouts.
  std::vector<MeasuredCandidate> fastest_candidates(size_t number);
  // All outcomes of a partition or of an equal one whose candidates fit it.
  TriedPartition tried(size_t number);

 private:
  // An outcome of a partition's candidate, or of an equal partition's candidate that fits this partition.
  struct FittingRow {
    const std::string* text;
    const MeasurementRow* row;
    const Candidate* candidate;
  };

  std::vector<FittingRow> fitting_rows(size_t number);
  std::vector<int> make_tensors(Measurements& made) const;
  enum class Untried { leave_out, expect };
  // Also makes their choice points.
  void make_partitions(const std::vector<int>& tensor_of, Untried untried, Measurements& made);
  void add_expected_candidates(size_t number, std::vector<MeasuredCandidate>& measured) const;
  void add_bounded_candidates(size_t number, LowerBounds& bounds, Listed listed,
                              std::vector<MeasuredCandidate>& measured) const;
  void make_choice_points(Measurements& made) const;
  void make_conversions(const std::vector<int>& tensor_of, Measurements& made) const;
  void add_expected_conversions(const std::vector<int>& tensor_of, Measurements& made);
  void add_bounded_conversions(const std::vector<int>& tensor_of, LowerBounds& bounds, Measurements& made);
  MeasuredPartition make_partition(size_t number, const std::vector<int>& tensor_of);

  const Graph& graph_;
  const Candidates& candidates_;
  const PartitionClasses& classes_;
  ConversionTrials& conversions_;
  // For each partition, the parsed candidate of each text in the database; nothing if the text does not fit the
  // partition. Cached, since every batch needs them.
  std::vector<std::map<std::string, std::optional<Candidate>>> parsed_;
};

}  // namespace millrace
