// The explorer's side of the worker, a separate process that tries candidates. A candidate that crashes, hangs or uses
// up the memory costs only its own row; the next request starts a new worker. Test: tests/measure/worker_test.cpp
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
  std::string greeting;                // the first line sent to it: the program to work on
  uint64_t memory_limit = 0;
  std::map<std::string, std::string> environment = {};  // added to ours
};

class Worker {
 public:
  explicit Worker(WorkerCommand command) : command_(std::move(command)) {}

  // Starts a process if none is running, without waiting until it has read the program.
  Result<Done> start();
  // Waits until it can take a request. False if that takes longer than this many seconds; an error if it cannot be
  // started.
  Result<bool> is_ready(double timeout_seconds);
  // An error only if no worker can be started. If the worker is killed or sends an invalid answer, which may not be the
  // candidate's fault, a new one tries once more.
  Result<MeasurementRow> run(const TrialRequest& request, double timeout_seconds);

 private:
  Result<MeasurementRow> run_once(const TrialRequest& request, double timeout_seconds);
  void end();

  WorkerCommand command_;
  std::optional<Child> child_;
  bool ready_ = false;
  bool in_doubt_ = false;  // what happened to the last one may not be its candidate's fault
};

}  // namespace millrace
