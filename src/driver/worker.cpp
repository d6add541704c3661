// The worker's side of an exploration: requests in, outcomes out, one line each.
#include "millrace/worker.h"

#include <malloc.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/sha256.h"
#include "candidates/partitions.h"
#include "device/cpu/module.h"
#include "driver/tuning.h"
#include "measure/gpu/gpu_trial.h"
#include "measure/trial.h"
#include "measure/worker_protocol.h"

namespace millrace {
namespace {

constexpr int kGpuFailed = 70;
constexpr int64_t kLargestCubin = int64_t{64} << 20;  // for one kernel

// A partition's expected values take gigabytes, and so do the next one's. If the memory were returned in between, one
// core would have to zero every page again.
void keep_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);  // never
#endif
}

MeasurementRow refused(const std::string& why) {
  MeasurementRow row;
  row.detail = why;
  return row;
}

class Server {
 public:
  explicit Server(Prepared prepared)
      : prepared_(std::move(prepared)), trials_(prepared_.training.graph, prepared_.candidates.domains) {}

  Result<Done> use_gpu() {
    Result<std::unique_ptr<Gpu>> gpu = open_gpu();
    if (!gpu) return gpu.error();
    const Result<std::unique_ptr<GpuCompiler>> compiler = open_gpu_compiler();
    if (!compiler) return compiler.error();
    gpu_ = std::move(*gpu);
    Result<GpuTrials> trials =
        GpuTrials::make(*gpu_, **compiler, prepared_.training.graph, prepared_.candidates.domains);
    if (!trials) return trials.error();
    gpu_trials_.emplace(std::move(*trials));
    return Done{};
  }

  MeasurementRow answer(const TrialRequest& request) {
    const std::optional<Partition> partition = partition_of(request);
    if (!partition) return refused("unknown partition");
    const std::optional<Candidate> candidate =
        parse_candidate(prepared_.candidates.domains, *partition, request.candidate);
    if (!candidate) return refused("invalid candidate text");
    if (gpu_trials_) return answer_on_gpu(request, *partition, *candidate);
    if (request.function.empty()) return trials_.run(*partition, *candidate, nullptr, request.settings);
    const Result<KernelModule> module = KernelModule::load(request.path, request.sha256);
    if (!module) return refused(module.error().diagnostics.front().message);
    const Result<void*> function = module->function(request.function);
    if (!function) return refused(function.error().diagnostics.front().message);
    return trials_.run(*partition, *candidate, *function, request.settings);
  }

 private:
  MeasurementRow answer_on_gpu(const TrialRequest& request, const Partition& partition, const Candidate& candidate) {
    std::string cubin;
    if (!request.function.empty()) {
      Result<std::string> bytes = read_file(request.path, kLargestCubin);
      if (!bytes) return refused(bytes.error().diagnostics.front().message);
      if (sha256(*bytes) != request.sha256) return refused("the kernel file changed after it was compiled");
      cubin = std::move(*bytes);
    }
    Result<MeasurementRow> row = gpu_trials_->run(partition, candidate, cubin, request.function, request.settings);
    if (row) return *row;
    // After a GPU error nothing works in this process any more, so the candidate ends it.
    std::cerr << "millrace-worker: " << row.error().diagnostics.front().message << std::endl;
    std::_Exit(kGpuFailed);
  }

  std::optional<Partition> partition_of(const TrialRequest& request) const {
    const Graph& graph = prepared_.training.graph;
    for (size_t k = 0; request.conversion && k < graph.tensors.size(); ++k) {
      if (graph.tensors[k].name == request.partition) return conversion_partition(graph, TensorId(k));
    }
    for (const PartitionCandidates& entry : prepared_.candidates.partitions) {
      if (!request.conversion && entry.partition.name == request.partition) return entry.partition;
    }
    return std::nullopt;
  }

  Prepared prepared_;
  Trials trials_;
  std::unique_ptr<Gpu> gpu_;
  std::optional<GpuTrials> gpu_trials_;
};

}  // namespace

int worker_main() {
  keep_memory();
  std::string line;
  if (!std::getline(std::cin, line)) return 2;
  const std::optional<TuneProgram> program = parse_greeting(line);
  if (!program) {
    std::cout << "invalid greeting" << std::endl;
    return 2;
  }
  Stages stages;
  Result<Prepared> prepared = prepare(stages, *program);
  if (!prepared) {
    std::cout << prepared.error().diagnostics.front().message << std::endl;
    return 1;
  }
  Server server(std::move(*prepared));
  if (program->device == "cuda") {
    if (Result<Done> there = server.use_gpu(); !there) {
      std::cout << there.error().diagnostics.front().message << std::endl;
      return 1;
    }
  }
  std::cout << "ready" << std::endl;
  while (std::getline(std::cin, line)) {
    const std::optional<TrialRequest> request = parse_request(line);
    std::cout << to_line(request ? server.answer(*request) : refused("invalid request")) << std::endl;
  }
  return 0;
}

}  // namespace millrace
