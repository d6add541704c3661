// The worker's side of an exploration: requests in, outcomes out, a line each.
#include "millrace/worker.h"

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "candidates/parts.h"
#include "device/cpu/module.h"
#include "driver/tuning.h"
#include "measure/trial.h"
#include "measure/worker_protocol.h"

namespace millrace {
namespace {

MeasurementRow refused(const std::string& why) {
  MeasurementRow row;
  row.detail = why;
  return row;
}

class Server {
 public:
  explicit Server(Prepared prepared)
      : prepared_(std::move(prepared)), trials_(prepared_.training.graph, prepared_.candidates.domains) {}

  MeasurementRow answer(const TrialRequest& request) {
    const std::optional<Part> part = part_of(request);
    if (!part) return refused("the worker knows no such part");
    const std::optional<Candidate> candidate = parse_candidate(prepared_.candidates.domains, *part, request.candidate);
    if (!candidate) return refused("the worker cannot read the candidate");
    if (request.function.empty()) return trials_.run(*part, *candidate, nullptr, request.settings);
    const Result<KernelModule> module = KernelModule::load(request.path, request.sha256);
    if (!module) return refused(module.error().diagnostics.front().message);
    const Result<void*> function = module->function(request.function);
    if (!function) return refused(function.error().diagnostics.front().message);
    return trials_.run(*part, *candidate, *function, request.settings);
  }

 private:
  std::optional<Part> part_of(const TrialRequest& request) const {
    const Graph& graph = prepared_.training.graph;
    for (size_t k = 0; request.conversion && k < graph.tensors.size(); ++k) {
      if (graph.tensors[k].name == request.part) return conversion_part(graph, TensorId(k));
    }
    for (const PartCandidates& of : prepared_.candidates.parts) {
      if (!request.conversion && of.part.name == request.part) return of.part;
    }
    return std::nullopt;
  }

  Prepared prepared_;
  Trials trials_;
};

}  // namespace

int worker_main() {
  std::string line;
  if (!std::getline(std::cin, line)) return 2;
  const std::optional<TuneProgram> program = parse_greeting(line);
  if (!program) {
    std::cout << "the greeting cannot be read" << std::endl;
    return 2;
  }
  Result<Prepared> prepared = prepare(*program);
  if (!prepared) {
    std::cout << prepared.error().diagnostics.front().message << std::endl;
    return 1;
  }
  Server server(std::move(*prepared));
  std::cout << "ready" << std::endl;
  while (std::getline(std::cin, line)) {
    const std::optional<TrialRequest> request = parse_request(line);
    std::cout << to_line(request ? server.answer(*request) : refused("the request cannot be read")) << std::endl;
  }
  return 0;
}

}  // namespace millrace
