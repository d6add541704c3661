// Batches of trials, and the compilation of their kernels in the background. Test: tests/measure/explore_test.cpp
#pragma once

#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "measure/kernel_maker.h"
#include "measure/partition_classes.h"
#include "millrace/result.h"

namespace millrace {

// A chosen trial, ready to run.
struct ReadyTrial {
  std::string name;  // in the database
  bool by_kernel = false;
  std::optional<Result<CompiledFile>> kernel;  // nothing without a kernel or without a compiler
};

struct CompiledBatch {
  std::vector<ReadyTrial> trials;
  size_t kernels = 0;
  double seconds = 0;  // compile time
};

// Trials chosen together. Their kernels are being compiled.
struct TrialBatch {
  std::vector<TrialId> chosen;
  double kernels = 0;
  std::future<CompiledBatch> compiled;
};

class BatchCompiler {
 public:
  // All references must outlive this and the batches. `kernels` is null without a compiler.
  BatchCompiler(const PartitionClasses& classes, const KernelMaker* kernels) : classes_(classes), kernels_(kernels) {}

  // Starts to compile the kernels of a batch's chosen trials.
  void start(TrialBatch& batch);

 private:
  CompiledBatch compile(const std::vector<Trial>& trials);

  const PartitionClasses& classes_;
  const KernelMaker* kernels_;
  std::mutex mutex_;
  double compiled_at_ = 0;  // when the last batch was compiled
};

}  // namespace millrace
