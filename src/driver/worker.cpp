// The worker's side of an exploration: requests in, outcomes out, one line each.
#include "millrace/worker.h"

#include <malloc.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "candidates/partitions.h"
#include "device/backend.h"
#include "driver/tuning.h"
#include "measure/memory_watch.h"
#include "measure/trial_runner.h"
#include "measure/worker_protocol.h"

namespace millrace {
namespace {

constexpr int kDeviceFailed = 70;

// A partition's expected values take gigabytes, and so do the next one's. If the memory were returned in between, one
// core would have to zero every page again.
void keep_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);  // never
#endif
}

class Server {
 public:
  explicit Server(Prepared prepared) : prepared_(std::move(prepared)) {}

  Result<Done> open(const std::string& device) {
    Result<std::shared_ptr<Backend>> backend = find_backend(device);
    if (!backend) return backend.error();
    if ((*backend)->target().own_memory) memory_.emplace(workers_share_of_memory());
    Result<std::unique_ptr<TrialRunner>> trials =
        make_trial_runner(std::move(*backend), prepared_.training.graph, prepared_.candidates.domains);
    if (!trials) return trials.error();
    trials_ = std::move(*trials);
    return Done{};
  }

  MeasurementRow answer(const TrialRequest& request) {
    const std::optional<Partition> partition = partition_of(request);
    if (!partition) return refused_trial("unknown partition");
    const std::optional<Candidate> candidate =
        parse_candidate(prepared_.candidates.domains, *partition, request.candidate);
    if (!candidate) return refused_trial("invalid candidate text");
    const Result<MeasurementRow> row =
        trials_->run(*partition, *candidate, {request.function, request.path, request.sha256}, request.settings);
    if (row) return *row;
    // After an error of the device nothing works in this process any more, so the error ends the process.
    std::cerr << "millrace-worker: " << row.error().diagnostics.front().message << std::endl;
    std::_Exit(kDeviceFailed);
  }

 private:
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
  std::unique_ptr<TrialRunner> trials_;  // uses prepared_
  std::optional<MemoryWatch> memory_;    // on a GPU; elsewhere the system has a limit
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
  if (Result<Done> there = server.open(program->device); !there) {
    std::cout << there.error().diagnostics.front().message << std::endl;
    return 1;
  }
  std::cout << "ready" << std::endl;
  while (std::getline(std::cin, line)) {
    const std::optional<TrialRequest> request = parse_request(line);
    std::cout << to_line(request ? server.answer(*request) : refused_trial("invalid request")) << std::endl;
  }
  return 0;
}

}  // namespace millrace
