// The cost of every operator before and of every launch after: flop, words, seconds, and the distance from the
// machine's limits. Test: tests/report/metrics_test.cpp
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

// Everything that a report is made from.
struct ReportArtefacts {
  const TrainingGraph& training;
  const FusedGraph& fused;
  const Analysis& analysis;
  const Candidates& candidates;
  const Measurements& measurements;
  const Exploration& exploration;
  const StepPlan& plan;
  std::string folder;       // of the plan; empty: not written
  std::string program;      // its file
  std::string method;       // of selection, as text; empty: not known
  double step_seconds = 0;  // measured; 0: not measured
  bool from_cache = false;  // the tensors were in the cache when candidates were timed
  std::string words = {};   // of a command line, which name the program and its options
  // One per launch of the plan, or none.
  std::vector<std::string> sources = {};   // of generated kernels; empty: a library's call
  std::vector<double> bench_seconds = {};  // in the running step, by millrace bench
  std::vector<double> counted_bytes = {};  // that moved, counted by ncu
  size_t loops_before = 0;  // contractions of the step before that are generated loops: no library computes them
};

// An operator before, or a launch after.
struct Piece {
  std::string name;
  Pass pass = Pass::forward;
  OperatorClass operator_class = OperatorClass::elementwise;
  bool conversion = false;
  bool added = false;      // an operator that was not in the program: recomputed, or a predicate
  bool estimated = false;  // a launch that this machine never timed alone: `seconds` is the byte model's
  std::vector<OperatorId> operators;
  std::string candidate;  // of a launch
  int64_t flop = 0;
  int64_t input_words = 0;
  int64_t output_words = 0;
  double moved_words = 0;  // D of the MUE, by the byte model
  double least_words = 0;  // Q of the MUE: what every implementation must move
  double bytes = 0;        // of what is moved
  double seconds = 0;      // 0: not known

  double flop_per_word() const;
};

// The fastest rates seen on this machine, over all measurements.
struct Peaks {
  double flop_per_second = 0;
  std::string flop_of;  // the partition that reached it
  double bytes_per_second = 0;
  std::string bytes_of;
};

struct StepMetrics {
  std::vector<Piece> operators;  // the graph's, each as its own kernel
  std::vector<Piece> before;     // those of them that were not added
  std::vector<Piece> after;      // the plan's launches
  std::vector<int> launch_of;    // one per operator; -1: none
  Peaks peaks;
  double words_before = 0;
  double words_after = 0;
  double bytes_before = 0;
  double bytes_after = 0;
};

// The fastest candidate of a partition for tensors laid out as in the program.
std::optional<double> seconds_as_written(const Measurements& measurements, const MeasuredPartition& partition);

// Pieces by descending time.
std::vector<const Piece*> slowest_first(const std::vector<Piece>& pieces);

// Launches whose seconds are the byte model's.
size_t estimated_launches(const StepMetrics& metrics);

// The sum over the plan's launches.
double step_seconds(const StepMetrics& metrics);

StepMetrics measure_step(const ReportArtefacts& artefacts);

// The rate as a fraction of the fastest seen; 0 if unknown.
double fraction_of_peak(const Piece& piece, const Peaks& peaks);
// The paper's memory usage efficiency Q/D · B/B̂.
double mue(const Piece& piece, const Peaks& peaks);

// The limit that explains most of the time, and the fraction of the time that it explains.
struct Limit {
  bool flop = false;    // otherwise memory
  double fraction = 0;  // of the time
};
std::optional<Limit> limit_of(const Piece& piece, const Peaks& peaks);

}  // namespace millrace
