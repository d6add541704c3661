// Kernels of a campaign, each of which runs a few times: compiled at -O1, and many in one call of the compiler even if
// some of them have errors. Test: tests/python/campaigns_test.py
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/trials_of_programs.h"
#include "device/cpu/kernel_cache.h"

namespace millrace::campaigns {

class QuickKernels {
 public:
  // What kernels run on: the processor, or the emulated GPU, whose kernels are those of emulated_source.
  static Result<QuickKernels> make(TriedOn device);

  // One for each source; nothing for those that do not compile. An error is the machine's.
  Result<std::vector<std::optional<CompiledKernel>>> compile(const std::vector<std::string>& sources) const;

  const KernelCache& cache() const { return cache_; }

 private:
  QuickKernels(Compiler compiler, std::string prelude, const std::string& folder);

  void leave_out_those_with_errors(const std::vector<std::string>& sources, std::vector<bool>& left_out) const;

  Compiler compiler_;
  std::string prelude_;
  KernelCache cache_;
};

}  // namespace millrace::campaigns
