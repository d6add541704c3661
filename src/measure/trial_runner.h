// Tries candidates on a backend: the one place of measure that knows which kinds of trials there are. Tests:
// tests/measure/trial_test.cpp, tests/measure/gpu_trial_test.cpp, tests/python/gpu_test.py
#pragma once

#include <memory>
#include <vector>

#include "candidates/candidates.h"
#include "device/backend.h"
#include "measure/kernel_maker.h"
#include "measure/measurement_row.h"
#include "measure/trial.h"

namespace millrace {

class TrialRunner {
 public:
  virtual ~TrialRunner() = default;
  // `kernel`: its name is empty if the candidate has none. An error means that the device itself failed: nothing more
  // can be tried in this process. Returns rows without their key.
  virtual Result<MeasurementRow> run(const Partition& partition, const Candidate& candidate, const CompiledFile& kernel,
                                     const TrialSettings& settings) = 0;
};

// A trial that did not run.
MeasurementRow refused_trial(const std::string& why);

// `graph` and `domains` must outlive the result.
Result<std::unique_ptr<TrialRunner>> make_trial_runner(std::shared_ptr<const Backend> backend, const Graph& graph,
                                                       const std::vector<TensorDomain>& domains);

}  // namespace millrace
