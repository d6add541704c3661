#include "measure/trial_runner.h"

#include <utility>

#include "base/directories.h"
#include "base/file.h"
#include "base/sha256.h"
#include "device/cpu/module.h"
#include "measure/gpu/gpu_trial.h"

namespace millrace {
namespace {

constexpr int64_t kLargestCubin = int64_t{64} << 20;  // for one kernel

class CpuTrialRunner : public TrialRunner {
 public:
  CpuTrialRunner(const Graph& graph, const std::vector<TensorDomain>& domains) : trials_(graph, domains) {}

  Result<MeasurementRow> run(const Partition& partition, const Candidate& candidate, const CompiledFile& kernel,
                             const TrialSettings& settings) override {
    if (kernel.name.empty()) return trials_.run(partition, candidate, nullptr, settings);
    const Result<KernelModule> module = KernelModule::load(kernel.path, kernel.sha256);
    if (!module) return refused_trial(module.error().diagnostics.front().message);
    const Result<void*> function = module->function(kernel.name);
    if (!function) return refused_trial(function.error().diagnostics.front().message);
    return trials_.run(partition, candidate, *function, settings);
  }

 private:
  Trials trials_;
};

class GpuTrialRunner : public TrialRunner {
 public:
  GpuTrialRunner(std::shared_ptr<const Backend> backend, GpuTrials trials)
      : backend_(std::move(backend)), trials_(std::move(trials)) {}

  Result<MeasurementRow> run(const Partition& partition, const Candidate& candidate, const CompiledFile& kernel,
                             const TrialSettings& settings) override {
    std::string cubin;
    if (!kernel.name.empty()) {
      Result<std::string> bytes = read_file(kernel.path, kLargestCubin);
      if (!bytes) return refused_trial(bytes.error().diagnostics.front().message);
      if (sha256(*bytes) != kernel.sha256) return refused_trial("the kernel file changed after it was compiled");
      cubin = std::move(*bytes);
    }
    return trials_.run(partition, candidate, cubin, kernel.name, settings);
  }

 private:
  std::shared_ptr<const Backend> backend_;  // owns the GPU of the trials
  GpuTrials trials_;
};

}  // namespace

MeasurementRow refused_trial(const std::string& why) {
  MeasurementRow row;
  row.detail = why;
  return row;
}

Result<std::unique_ptr<TrialRunner>> make_trial_runner(std::shared_ptr<const Backend> backend, const Graph& graph,
                                                       const std::vector<TensorDomain>& domains) {
  const std::shared_ptr<Gpu> gpu = backend->gpu();
  if (!gpu) return std::unique_ptr<TrialRunner>(std::make_unique<CpuTrialRunner>(graph, domains));
  const Result<std::shared_ptr<GpuCompiler>> compiler = backend->gpu_compiler();
  if (!compiler) return compiler.error();
  const Result<std::string> directory = cache_directory();
  if (!directory) return directory.error();
  Result<GpuTrials> trials = GpuTrials::make(*gpu, **compiler, *directory, graph, domains);
  if (!trials) return trials.error();
  return std::unique_ptr<TrialRunner>(std::make_unique<GpuTrialRunner>(std::move(backend), std::move(*trials)));
}

}  // namespace millrace
