// What came of the trials, as Measurements: what is measured, and for a selection that says what to try next, what is
// expected of the rest.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "measure/conversion_trials.h"
#include "measure/measurements.h"
#include "measure/partition_classes.h"

namespace millrace {

class MeasurementsMaker {
 public:
  // What is referred to lives longer.
  MeasurementsMaker(const Graph& graph, const Candidates& candidates, const PartitionClasses& classes,
                    ConversionTrials& conversions)
      : graph_(graph),
        candidates_(candidates),
        classes_(classes),
        conversions_(conversions),
        parsed_(candidates.partitions.size()) {}

  Measurements measured();
  // What is measured, and for other layouts what is expected.
  Measurements expected();
  // Of a partition, one way for each combination of layouts.
  std::vector<MeasuredCandidate> fastest_configs(size_t number);
  // Everything that was tried of a partition and would fit it.
  TriedPartition tried(size_t number);

 private:
  // Of a partition: what was tried that is its candidate, or that an equal partition's is and it could take.
  struct FittingRow {
    const std::string* text;
    const MeasurementRow* row;
    const Candidate* candidate;
  };

  std::vector<FittingRow> fitting_rows(size_t number);
  std::vector<int> make_tensors(Measurements& made) const;
  void make_partitions(const std::vector<int>& tensor_of, bool expected, Measurements& made);
  void add_expected_configs(size_t number, std::vector<MeasuredCandidate>& configs) const;
  void make_choice_points(Measurements& made) const;
  void make_conversions(const std::vector<int>& tensor_of, Measurements& made) const;
  void add_expected_conversions(const std::vector<int>& tensor_of, Measurements& made);

  const Graph& graph_;
  const Candidates& candidates_;
  const PartitionClasses& classes_;
  ConversionTrials& conversions_;
  // One a partition: its rows' candidates, by their texts; nothing where it could not take them. Kept, since they are
  // asked for between every two batches.
  std::vector<std::map<std::string, std::optional<Candidate>>> parsed_;
};

}  // namespace millrace
