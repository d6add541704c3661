// One candidate on a GPU, tried: run on poisoned outputs, compared there with the truth, and only then timed, from cold
// caches. Runs in a worker process, which a candidate may take down with it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "measure/gpu/gpu_checker.h"
#include "measure/measurement_row.h"
#include "measure/reference_data.h"
#include "measure/trial.h"

namespace millrace {

class GpuTrials {
 public:
  static Result<GpuTrials> make(Gpu& gpu, const GpuCompiler& compiler, const Graph& graph,
                                const std::vector<TensorDomain>& domains);

  // `cubin`: the compiled kernel, where the candidate is one, and `name` what its functions' names begin with. An error
  // is one of the GPU itself: nothing more can be tried in this process.
  Result<MeasurementRow> run(const Partition& partition, const Candidate& candidate, const std::string& cubin,
                             const std::string& name, const TrialSettings& settings);

 private:
  struct Expectation {  // of one tensor that the partition writes
    GpuMemory values;
    GpuMemory tolerances;
  };
  // What a partition must compute, on the GPU.
  struct Known {
    ReferenceData reference_data;
    bool by_peer = false;  // too large for the reference: against a peer, of which elements were computed one by one
    bool has_peer = false;
    std::vector<GpuMemory> inputs;
    std::vector<Expectation> expected;
    uint64_t used = 0;  // when
  };
  // The partition's tensors in one block of memory.
  struct Places {
    std::vector<int64_t> offsets;
    std::vector<int64_t> sizes;
    int64_t bytes = 0;
  };

  GpuTrials(Gpu& gpu, GpuChecker checker, const Graph& graph, const std::vector<TensorDomain>& domains)
      : gpu_(&gpu), checker_(std::move(checker)), graph_(&graph), domains_(&domains) {}

  Places places_of(const Partition& partition, const std::vector<Layout>& layouts) const;
  Result<Done> find_reference_data(const Partition& partition);
  Result<Done> learn(const Partition& partition, Known& known);
  bool forget_oldest();
  Result<Done> upload(const std::vector<double>& values, GpuMemory& to);
  Result<Done> reserve(int64_t bytes, GpuMemory& memory);
  std::vector<void*> pointers(const Places& places, int64_t set) const;
  Result<Done> put_inputs(const Partition& partition, const std::vector<Layout>& layouts, const Places& places,
                          bool magnitudes);
  Result<Done> launch_once(GpuLaunch& launch, const Places& places, int64_t set);
  Result<std::string> check(const Partition& partition, const std::vector<Layout>& layouts, const Places& places,
                            GpuLaunch& launch);
  Result<std::string> take_as_peer(const Partition& partition, const std::vector<Layout>& layouts, const Places& places,
                                   GpuLaunch& launch);
  Result<std::string> describe(const Partition& partition, const std::vector<Layout>& layouts, const Places& places,
                               size_t write, int64_t element);
  Result<MeasurementRow> refused_unless_lost(const Error& error);
  Result<Done> settle();
  Result<MeasurementRow> time(const Places& places, int64_t sets, GpuLaunch& launch, const TrialSettings& settings);

  Gpu* gpu_;
  GpuChecker checker_;
  const Graph* graph_;
  const std::vector<TensorDomain>* domains_;
  std::map<std::string, Known> known_;  // by reference_data_name: candidates of one partition do not all come together
  Known* partition_ = nullptr;          // the one that is tried
  uint64_t uses_ = 0;
  bool no_room_ = false;  // the trial failed for lack of the GPU's memory
  GpuMemory sets_;
  GpuMemory scratch_;
  GpuMemory state_;
  GpuMemory flushed_;        // more than the cache holds
  double control_best_ = 0;  // seconds of the control, as fast as it ever was
  double control_at_ = 0;    // when it ran last
};

}  // namespace millrace
