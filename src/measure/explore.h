// Candidates → Measurements: compiles, checks and times candidates, the most promising first, until all are done or the
// deadline comes. Stores every outcome in the database before the next trial starts. Test:
// tests/measure/explore_test.cpp
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/deadline.h"
#include "candidates/candidates.h"
#include "device/cpu/ceilings.h"
#include "measure/database.h"
#include "measure/kernel_maker.h"
#include "measure/measurements.h"
#include "measure/worker.h"

namespace millrace {

struct ExploreProgress {
  double done = 0;   // candidates, including those known from the database
  double tried = 0;  // in this run
  double total = 0;
  double bound = 0;    // seconds of a step if every partition could use its fastest candidate so far
  double seconds = 0;  // seconds of the best selection so far; 0: none yet
  double passed = 0;   // seconds since the exploration began
  double left = 0;     // seconds left until the deadline; 0: there is none
  std::string doing;   // the phase: "compiling" or "measuring"
};

// What the best selection uses if every untried candidate and conversion is as fast as expected.
struct Wanted {
  struct Candidate {
    std::string partition;
    std::string candidate;
  };
  struct Conversion {
    std::string tensor;
    int from = 0;
    int to = 0;
  };
  std::vector<Candidate> candidates;
  std::vector<Conversion> conversions;
};

// Measurements in which a lower bound takes the place of every unknown time.
struct BoundedMeasurements {
  Measurements measurements;
  bool every_layout = true;  // false: partitions have candidates with other layouts, which are not listed
};

// Two selections: the best of what is measured, and the best if everything untried took its lower bound.
struct StepProof {
  double step = 0;         // seconds of the first; 0: there is none
  double lower_bound = 0;  // proven, from the second
  // For each partition and candidate of the bounded measurements: no selection with this candidate takes less. Empty:
  // unknown.
  std::vector<std::vector<double>> with;
  Wanted wanted;  // what the second uses
};

struct ExploreSettings {
  // When to stop. Baselines without which there is no measured plan may take `baseline_grace` seconds longer; those
  // that are not tried by then get their expected time.
  Deadline deadline = Deadline::never();
  double baseline_grace = 0;
  bool exhaustive = false;                   // try every candidate, or one per timing class
  bool measure = true;                       // false: use only what the database has
  bool assume = false;                       // use the byte model's time for every baseline that was not tried
  std::string device;                        // everything about the machine that changes a time, as one text
  std::vector<std::string> similar_devices;  // whose measurements say something too, where this one has none
  TrialSettings trial;
  size_t batch = 24;  // candidates chosen together
  // Compile the next batches while one is measured: only where compilers do not disturb the measurement.
  bool compile_ahead = false;
  size_t compilers = 1;      // that run at the same time
  double hang_seconds = 60;  // after this time, a trial counts as hung; with a deadline, after a share of the rest
  // The next candidates of a partition that is not listed whole, at most `most` of them. Null: all are listed.
  std::function<std::vector<Candidate>(size_t partition, size_t most)> more;
  // The configs of a partition under given layouts, to recognize candidates that are not listed. Null: all are listed.
  std::function<std::vector<Candidate>(const Partition&, const std::vector<int>& layouts)> configs_under;
  // The other configs with a candidate's layouts: every algorithm of a product for which the library's own choice was
  // tried, every shape of a kernel. Null: all of them are in `candidates`.
  std::function<std::vector<Candidate>(const Partition&, const Candidate&)> refinements;
  // A key for each candidate: candidates of a partition with equal keys take equally long. Null: unknown.
  std::function<std::string(const Partition&, const Candidate&)> timing_class;
  // Whether to try this candidate of a class of partitions, by their texts; another machine tries the others. Null:
  // all.
  std::function<bool(const std::string& partition, const std::string& candidate)> mine;
  // `seconds`: how long these functions may take.
  std::function<Wanted(const Measurements&, double seconds)> wanted;  // null: every partition is explored by itself
  // Null: nothing is proven, and candidates are tried even if they cannot be part of a faster plan.
  std::function<StepProof(const Measurements& measured, const BoundedMeasurements&, double seconds)> prove;
  Ceilings ceilings;                                                  // for lower bounds of times
  int threads = 1;                                                    // of library calls
  std::function<double(const Measurements&, double seconds)> select;  // seconds of the best selection; 0: none
  std::function<void(const ExploreProgress&)> progress;
  // The candidates that convert a tensor from one layout to another.
  std::function<PartitionCandidates(TensorId, int from, int to)> conversions;
};

struct Explored {
  Measurements measurements;
  Exploration summary;
};

Result<Explored> explore(const Graph& graph, const Candidates& candidates, const ExploreSettings& settings,
                         const KernelMaker* kernels, Database& database, Worker& worker);

}  // namespace millrace
