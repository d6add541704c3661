#include "measure/trial_batch.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "measure/background.h"
#include "measure/recall.h"

namespace millrace {

void BatchCompiler::start(TrialBatch& batch) {
  // Copies, since trials may be added while these compile.
  std::vector<Trial> trials;
  for (const TrialId& chosen : batch.chosen) trials.push_back(classes_.trial(chosen));
  batch.compiled =
      run_in_background(Background::on_a_thread, [this, trials = std::move(trials)] { return compile(trials); });
}

CompiledBatch BatchCompiler::compile(const std::vector<Trial>& trials) {
  CompiledBatch made;
  std::vector<Launch> with_kernels;
  for (const Trial& trial : trials) {
    Launch launch = classes_.launch_of(trial);
    made.trials.push_back({stored_name(kernels_, trial, launch), !launch.kernel.empty(), std::nullopt});
    if (made.trials.back().by_kernel) with_kernels.push_back(std::move(launch));
  }
  if (kernels_ == nullptr || with_kernels.empty()) return made;
  const double begin = now();
  std::vector<Result<CompiledFile>> kernels = kernels_->make(with_kernels);
  {
    // Batches compile in request order: this one waited until the previous one was done.
    const std::lock_guard lock(mutex_);
    made.seconds = now() - std::max(begin, compiled_at_);
    compiled_at_ = now();
  }
  made.kernels = kernels.size();
  size_t next = 0;
  for (ReadyTrial& ready : made.trials) {
    if (ready.by_kernel) ready.kernel = std::move(kernels[next++]);
  }
  return made;
}

}  // namespace millrace
