// The explorer's side of the worker: a process of its own that tries candidates. One that crashes, hangs or eats all
// memory costs its own row and nothing else; the next request starts a new worker.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/process.h"
#include "measure/worker_protocol.h"

namespace millrace {

struct WorkerCommand {
  std::vector<std::string> arguments;  // the program and its options
  std::string greeting;                // the first line that it is sent: what it works on
  uint64_t memory_limit = 0;
  std::map<std::string, std::string> environment = {};  // beside ours
};

class Worker {
 public:
  explicit Worker(WorkerCommand command) : command_(std::move(command)) {}

  // An error only where no worker can be started at all.
  Result<MeasurementRow> run(const TrialRequest& request, double timeout_seconds);

 private:
  Result<Done> start();

  WorkerCommand command_;
  std::optional<Child> child_;
};

}  // namespace millrace
