// What every operator costs before and every launch after: flop, words, seconds, and how far from the machine's limits.
// Test: tests/report/metrics_test.cpp
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/analysis.h"
#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "fusion/fused_graph.h"
#include "measure/measurements.h"
#include "plan/plan.h"

namespace millrace {

// All that a report is made from.
struct ReportArtefacts {
  const TrainingGraph& training;
  const FusedGraph& fused;
  const Analysis& analysis;
  const Candidates& candidates;
  const Measurements& measurements;
  const Exploration& exploration;
  const StepPlan& plan;
  std::string folder;       // of the plan; empty: it was not written
  std::string program;      // its file
  std::string method;       // of selection, in words
  double step_seconds = 0;  // as measured; 0: it was not
  bool from_cache = false;  // the tensors were in the cache when candidates were timed
};

// An operator before, or a launch after.
struct Piece {
  std::string name;
  Pass pass = Pass::forward;
  OperatorClass operator_class = OperatorClass::elementwise;
  bool conversion = false;
  bool added = false;  // an operator that was not there before: computed again, or a predicate
  std::vector<OperatorId> operators;
  std::string candidate;  // of a launch
  int64_t flop = 0;
  int64_t input_words = 0;
  int64_t output_words = 0;
  double moved_words = 0;  // D of the MUE: as the byte model has it
  double least_words = 0;  // Q: what any implementation moves
  double bytes = 0;        // of what is moved
  double seconds = 0;      // 0: not known

  double flop_per_word() const;
};

// The fastest that was seen on this machine, over everything that was measured.
struct Peaks {
  double flop_per_second = 0;
  std::string flop_of;  // the partition that reached it
  double bytes_per_second = 0;
  std::string bytes_of;
};

struct StepMetrics {
  std::vector<Piece> operators;  // the graph's, each by itself
  std::vector<Piece> before;     // those of them that were not added
  std::vector<Piece> after;      // the plan's launches
  std::vector<int> launch_of;    // one an operator; -1: none
  Peaks peaks;
  double words_before = 0;
  double words_after = 0;
};

// The fastest way of a partition for tensors as the program writes them.
std::optional<double> seconds_as_written(const Measurements& measurements, const MeasuredPartition& partition);

StepMetrics measure_step(const ReportArtefacts& artefacts);

// Of the fastest seen; 0 where not known.
double fraction_of_peak(const Piece& piece, const Peaks& peaks);
// The paper's memory usage efficiency Q/D · B/B̂.
double mue(const Piece& piece, const Peaks& peaks);

// Which limit holds a piece, and how much of its time that limit explains.
struct Limit {
  bool flop = false;    // else the memory
  double fraction = 0;  // of the time
};
std::optional<Limit> limit_of(const Piece& piece, const Peaks& peaks);

}  // namespace millrace
