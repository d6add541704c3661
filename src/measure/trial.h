// Tries a candidate on the CPU: runs it on poisoned outputs, compares with the reference data, and only then times it.
// A candidate that writes outside of its outputs, or that computes only the first time, is wrong. Runs in a worker
// process, which a candidate may crash. Test: tests/measure/trial_test.cpp
#pragma once

#include <optional>
#include <string>

#include "candidates/candidates.h"
#include "device/launch.h"
#include "measure/cache_use.h"
#include "measure/measurement_row.h"
#include "measure/reference_cache.h"

namespace millrace {

class CpuLaunch;

struct TrialSettings {
  CacheUse caches = {};
  double best_seconds = 0;  // best time of this partition so far; far slower candidates get fewer samples
  double seconds = 0.025;   // time to spend on samples of one that may be the fastest
};

// Returns rows without their key, which the caller fills in.
class Trials {
 public:
  Trials(const Graph& graph, const std::vector<TensorDomain>& domains);

  // `function`: the compiled kernel, if the candidate is one.
  MeasurementRow run(const Partition& partition, const Candidate& candidate, void* function,
                     const TrialSettings& settings);

  // Makes the reference data that `run` needs, unless it is there.
  Result<Done> prepare_reference_data(const Partition& partition);

 private:
  struct Buffers;

  Trials(const Graph& graph, DrawRules rules, const std::vector<TensorDomain>& domains, int64_t reference_bytes);

  // The graph at small extents.
  struct Small {
    Graph graph;
    DrawRules rules;
  };
  const Small& small();

  std::string check(const Partition& partition, const std::vector<Layout>& layouts, const CpuLaunch& launch,
                    Buffers& buffers);
  std::string run_on(const ReferenceData& data, const Partition& partition, const std::vector<Layout>& layouts,
                     const CpuLaunch& launch, Buffers& buffers) const;
  std::string misuse(const Partition& partition, const Buffers& buffers) const;
  std::string compare(const ReferenceData& data, const Partition& partition, const std::vector<Layout>& layouts,
                      const Buffers& buffers) const;
  std::string check_again(const Partition& partition, const std::vector<Layout>& layouts, const Buffers& buffers) const;
  std::string check_small(const Partition& partition, const Candidate& candidate);
  Result<Done> take_as_peer(const Partition& partition, const std::vector<Layout>& layouts, const CpuLaunch& launch,
                            Buffers& buffers);
  std::string allow(const Partition& partition, size_t write, std::vector<double> magnitudes);
  std::string probe(const Partition& partition) const;
  MeasurementRow time(const Partition& partition, const std::vector<Layout>& layouts, const CpuLaunch& launch,
                      std::vector<Buffers>& sets, const TrialSettings& settings) const;

  const Graph& graph_;
  const DrawRules rules_;
  std::optional<Small> small_;
  const std::vector<TensorDomain>& domains_;
  ReferenceCache references_;
  KnownReference* known_ = nullptr;  // of the partition that is being tried
};

// A row for measured samples, in seconds.
MeasurementRow measured_row(const std::vector<double>& samples);

// Whether the reference would take too long for a partition.
bool is_large(const Partition& partition);

}  // namespace millrace
