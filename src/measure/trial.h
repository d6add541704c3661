// One candidate, tried: run on poisoned outputs, compared with the truth, and only then timed. Runs in a worker
// process, which a candidate may take down with it.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "candidates/candidates.h"
#include "device/launch.h"
#include "measure/measurement_row.h"
#include "measure/reference_data.h"

namespace millrace {

class CpuLaunch;

struct TrialSettings {
  bool cold = false;        // the program's tensors together do not fit into the last cache: inputs come from memory
  int64_t cache_bytes = 0;  // of that cache
  double best_seconds = 0;  // known of this partition; far slower ones are timed less often
  double seconds = 0.3;     // to spend on timing
};

// What came of it; the row's key is left to the caller.
class Trials {
 public:
  Trials(const Graph& graph, const std::vector<TensorDomain>& domains)
      : graph_(graph), small_(shrunken(graph)), domains_(domains) {}

  // `function`: the compiled kernel, where the candidate is one.
  MeasurementRow run(const Partition& partition, const Candidate& candidate, void* function,
                     const TrialSettings& settings);

 private:
  struct Buffers;

  Result<Done> find_reference_data(const Partition& partition);
  std::string check(const Partition& partition, const std::vector<Layout>& layouts, const CpuLaunch& launch,
                    Buffers& buffers);
  std::string check_small(const Partition& partition, const Candidate& candidate);
  Result<Done> take_as_peer(const Partition& partition, const std::vector<Layout>& layouts, const CpuLaunch& launch,
                            Buffers& buffers);
  std::string probe(const Partition& partition) const;
  MeasurementRow time(const Partition& partition, const std::vector<Layout>& layouts, const CpuLaunch& launch,
                      std::vector<Buffers>& sets, const TrialSettings& settings) const;

  const Graph& graph_;
  Graph small_;
  const std::vector<TensorDomain>& domains_;
  // Of the partition that was tried last: candidates of one partition come one behind the other.
  std::string partition_;
  ReferenceData reference_data_;
  bool by_peer_ = false;  // too large for the reference: checked at small extents, and against a peer that passed
  bool has_peer_ = false;
};

// What was measured, from samples in seconds.
MeasurementRow measured_row(const std::vector<double>& samples);

// Whether the reference takes too long for a partition.
bool is_large(const Partition& partition);

}  // namespace millrace
