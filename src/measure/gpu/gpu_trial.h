// Tries a candidate on a GPU: runs it on poisoned outputs, compares with the reference data there, and only then times
// it with cold caches. A candidate that writes outside of its outputs, or that computes only the first time, is wrong.
// Runs in a worker process, which a candidate may crash. Test: tests/measure/gpu_trial_test.cpp
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "measure/gpu/gpu_checker.h"
#include "measure/gpu/gpu_reference.h"
#include "measure/measurement_row.h"
#include "measure/recently_used.h"
#include "measure/reference_data.h"
#include "measure/trial.h"

namespace millrace {

class GpuTrials {
 public:
  // `directory`: where the oracle's kernels are kept.
  static Result<GpuTrials> make(Gpu& gpu, const GpuCompiler& compiler, const std::string& directory, const Graph& graph,
                                const std::vector<TensorDomain>& domains);

  // `cubin`: the compiled kernel, if the candidate is one. `name`: the prefix of its functions' names. An error means
  // that the GPU itself failed: nothing more can be tried in this process.
  Result<MeasurementRow> run(const Partition& partition, const Candidate& candidate, const std::string& cubin,
                             const std::string& name, const TrialSettings& settings);

  // Why the expected values of the last partition were not computed on the GPU; empty if they were.
  const std::string& why_not_on_gpu() const { return why_not_on_gpu_; }

 private:
  // A partition's reference data on the GPU.
  struct Known {
    std::string name;       // reference_data_name()
    GpuReferenceData data;  // its numbers have the inputs while the peer is probed
    bool by_peer = false;   // too large for both oracles: compared with a peer whose elements were probed
    bool has_peer = false;
  };
  // The partition's tensors in one block of memory, with red zones before and after each.
  struct Placement {
    std::vector<int64_t> offsets;
    std::vector<int64_t> sizes;
    std::vector<ByteRange> written;  // the outputs, sorted
    int64_t bytes = 0;
  };

  GpuTrials(Gpu& gpu, GpuChecker checker, Oracle oracle, const Graph& graph, const std::vector<TensorDomain>& domains)
      : gpu_(&gpu),
        checker_(std::move(checker)),
        oracle_(std::move(oracle)),
        graph_(&graph),
        rules_(draw_rules(graph)),
        domains_(&domains) {}

  Placement place(const Partition& partition, const std::vector<Layout>& layouts) const;
  Result<Done> prepare_reference_data(const Partition& partition);
  Result<Done> compute_reference_data(const Partition& partition, Known& known);
  Result<Done> compute_on_cpu(const Partition& partition, Known& known);
  Result<GpuMemory> allocate(int64_t bytes);
  Result<Done> upload(const std::vector<double>& values, GpuMemory& to);
  Result<Done> reserve(int64_t bytes, GpuMemory& memory);
  std::vector<void*> pointers(const Placement& placement, int64_t set) const;
  enum class InputsAs { values, magnitudes };
  Result<Done> put_inputs(const Partition& partition, const std::vector<Layout>& layouts, const Placement& placement,
                          InputsAs form);
  Result<Done> launch_once(GpuLaunch& launch, const Placement& placement, int64_t set);
  Result<std::string> check(const Partition& partition, const std::vector<Layout>& layouts, const Placement& placement,
                            GpuLaunch& launch);
  Result<std::string> compare(const Partition& partition, const std::vector<Layout>& layouts,
                              const Placement& placement);
  Result<std::string> misuse(const Partition& partition, const Placement& placement, const GpuLaunch& launch);
  Result<std::string> check_again(const Partition& partition, const std::vector<Layout>& layouts,
                                  const Placement& placement, GpuLaunch& launch);
  char* scratch() const;
  Result<std::string> take_as_peer(const Partition& partition, const std::vector<Layout>& layouts,
                                   const Placement& placement, GpuLaunch& launch);
  Result<std::string> describe(const Partition& partition, const std::vector<Layout>& layouts,
                               const Placement& placement, size_t write, int64_t element);
  Result<MeasurementRow> failed_unless_lost(const Error& error);
  Result<Done> settle();
  Result<MeasurementRow> time(const Placement& placement, int64_t sets, GpuLaunch& launch,
                              const TrialSettings& settings);

  Gpu* gpu_;
  GpuChecker checker_;
  Oracle oracle_;
  const Graph* graph_;
  DrawRules rules_;
  const std::vector<TensorDomain>* domains_;
  RecentlyUsed<Known> known_;   // a partition's candidates come in several batches
  Known* partition_ = nullptr;  // the one being tried
  std::string why_not_on_gpu_;
  bool no_room_ = false;  // the GPU's memory did not suffice for the trial
  GpuMemory sets_;
  GpuMemory scratch_;
  GpuMemory state_;
  GpuMemory flushed_;        // larger than the cache: written to evict everything else
  double control_best_ = 0;  // best seconds of the control
  double control_at_ = 0;    // when it last ran
};

}  // namespace millrace
