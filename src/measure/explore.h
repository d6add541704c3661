// Candidates → Measurements: compiles, checks and times candidates in the order in which they promise most, until all
// are done or the time is spent. Every outcome is in the database before the next candidate starts.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "candidates/candidates.h"
#include "measure/database.h"
#include "measure/kernel_maker.h"
#include "measure/measurements.h"
#include "measure/worker.h"

namespace millrace {

struct ExploreProgress {
  double done = 0;  // candidates, known ones among them
  double total = 0;
  double bound = 0;    // seconds of a step, if every partition could take its fastest way so far
  double seconds = 0;  // of the best selection so far; 0: none yet
  double left = 0;     // of the budget
  std::string doing;
};

// What the best selection takes, of measurements in which what was not tried is as fast as expected.
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

struct ExploreSettings {
  double budget_seconds = 60;
  bool exhaustive = false;  // every candidate, or one of each that are alike
  bool measure = true;      // false: what the database has, and nothing else
  bool assume = false;      // what is tried first and was not is taken to be as fast as the model says
  std::string device;       // all of the machine that changes a time, as one text
  TrialSettings trial;
  size_t batch = 24;           // candidates between two decisions on what comes next
  bool compile_ahead = false;  // the next batches while one is measured: where compilers do not disturb
  double hang_seconds = 60;    // of a trial
  // The other ways under a candidate's layouts: every algorithm of a product that the library's heuristic has been
  // tried for, every shape of a kernel. Null: all are candidates from the beginning.
  std::function<std::vector<Candidate>(const Partition&, const Candidate&)> refinements;
  // Which candidates of a partition take equally long, by equal texts. Null: nobody knows.
  std::function<std::string(const Partition&, const Candidate&)> timing_class;
  std::function<Wanted(const Measurements&)> wanted;  // null: partitions are looked at one by one
  std::function<void(const ExploreProgress&)> progress;
  std::function<double(const Measurements&)> select;  // the cost of the best selection, for the progress; 0: none
  // The ways from one layout of a tensor to another.
  std::function<PartitionCandidates(TensorId, int from, int to)> conversions;
};

struct Explored {
  Measurements measurements;
  Exploration summary;
};

Result<Explored> explore(const Graph& graph, const Candidates& candidates, const ExploreSettings& settings,
                         const KernelMaker* kernels, Database& database, Worker& worker);

}  // namespace millrace
